"""What the pictures of question 1 show."""

from flattest.lab.summary import read_summaries
from flattest.studies.question1.picture import RESULTS, phase

SUMMARIES = read_summaries(RESULTS)


def test_the_phase_diagram_has_a_panel_per_dimension():
    assert [ax.get_title() for ax in phase(SUMMARIES).axes] == [
        f"$d = {d}$" for d in (10, 20, 30, 40)
    ]
