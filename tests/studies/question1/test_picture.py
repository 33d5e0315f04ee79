"""The pictures of question 1 are those of the committed results."""

import pytest

from flattest.lab.summary import read_summaries
from flattest.studies.question1.picture import PICTURES, RESULTS, outcomes, phase
from support.pictures import differing
from support.places import ROOT

SUMMARIES = read_summaries(RESULTS)
FIGURES = ROOT / "docs" / "figures" / "question1"


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_that_of_the_committed_results(name, tmp_path):
    assert differing(PICTURES[name](SUMMARIES), FIGURES / f"{name}.png", tmp_path) <= 0.01


@pytest.mark.slow
def test_a_picture_of_other_results_would_be_noticed(tmp_path):
    others = [s for s in SUMMARIES if "d30-n100" not in s.experiment]
    assert differing(outcomes(others), FIGURES / "outcomes.png", tmp_path) > 0.01


def test_the_phase_diagram_has_a_panel_per_dimension():
    assert [ax.get_title() for ax in phase(SUMMARIES).axes] == [
        f"$d = {d}$" for d in (10, 20, 30, 40)
    ]
