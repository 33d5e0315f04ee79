"""The pictures of question 1 are those of the committed results."""

import pytest

from flattest.lab.summary import read_summaries
from flattest.studies.question1.picture import PICTURES, RESULTS, outcomes, phase
from support.pictures import differing
from support.places import ROOT

SUMMARIES = read_summaries(RESULTS)
FIGURES = ROOT / "docs" / "figures" / "question1"


def test_the_phase_diagram_has_a_panel_per_dimension():
    assert [ax.get_title() for ax in phase(SUMMARIES).axes] == [
        f"$d = {d}$" for d in (10, 20, 30, 40)
    ]
