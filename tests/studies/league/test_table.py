"""The main table of docs/league.md is that of the committed results."""

import pytest

from flattest.experiments.registry import papers
from flattest.lab.summary import read_summaries
from flattest.ledger.figures import RESULTS
from flattest.studies.league.table import interval, main_table
from support.places import ROOT


def test_the_documents_main_table_is_that_of_the_results():
    summaries = read_summaries(papers()["league"].folder / RESULTS)
    assert main_table(summaries) in (ROOT / "docs" / "league.md").read_text()


def test_ten_of_ten_leave_room_for_doubt():
    assert interval(10, 10) == pytest.approx((0.6915, 1), abs=1e-4)
    assert interval(0, 10) == pytest.approx((0, 0.3085), abs=1e-4)
    assert interval(5, 10) == pytest.approx((0.1871, 0.8129), abs=1e-4)
