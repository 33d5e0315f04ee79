"""The phase diagram of question 1: its threshold, and that the page has what results.json has."""

import numpy as np
import pytest

from flattest.lab.summary import read_summaries
from flattest.studies.question1.picture import RESULTS, draw, table, threshold, thresholds
from support.places import ROOT

PAGE = (ROOT / "docs" / "question1.md").read_text(encoding="utf-8")


def test_a_threshold_is_found_with_its_interval():
    """Draws from a logistic curve with its middle at 3.2: the interval has it, and is not wide."""
    rng = np.random.default_rng(0)
    shares = (1.8, 2.5, 3.0, 3.5, 4.0, 5.0)
    drawn = {x: (int(rng.binomial(200, 1 / (1 + np.exp(5 * (x - 3.2))))), 200) for x in shares}
    found = threshold(drawn)
    assert found.low <= 3.2 <= found.high
    assert found.high - found.low < 0.3
    moved = threshold({x + 1: count for x, count in drawn.items()})
    assert moved.at == pytest.approx(found.at + 1, abs=0.05)


def test_a_sharp_step_is_found_between_its_cells():
    found = threshold({2.0: (10, 10), 3.0: (10, 10), 4.0: (0, 10)})
    assert 3 < found.low <= found.at <= found.high < 4


def test_the_page_has_the_table_and_the_thresholds_of_the_results():
    summaries = read_summaries(RESULTS)
    assert table(summaries) in PAGE
    assert thresholds(summaries) in PAGE


@pytest.mark.slow
def test_the_picture_is_drawn():
    assert len(draw(read_summaries(RESULTS)).axes) == 4
