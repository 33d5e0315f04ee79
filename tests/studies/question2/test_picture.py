"""What the pictures of question 2 show."""

import numpy as np
import pytest

from flattest.errors import FlattestError
from flattest.lab.summary import Spread, Summary, read_summaries
from flattest.studies.question2.decides import Scales
from flattest.studies.question2.picture import RESULTS, axes, cells, diagrams, scales, ways
from flattest.studies.question2.table import NAMES as WAYS
from flattest.studies.question2.ways import Diagram

SUMMARIES = read_summaries(RESULTS)


def summary(panel, columns):
    return Summary(
        *(f"question2/{panel}", "", "", "", "full", 3, {}, 1.0, "", "", 3),
        columns=columns,
        verdicts=(),
    )


def test_a_cell_is_its_median_and_none_where_a_seed_diverged():
    found = summary(
        "scales",
        {"η = 0.003, scale = 0.1": Spread(0.2, 0.1, 0.3), "η = 0.003, scale = 3": None},
    )
    assert axes(found) == ("η", "scale")
    assert cells(found)[0.003, 0.1] == 0.2
    assert np.isnan(cells(found)[0.003, 3.0])
    drawn = scales([found])
    assert {text.get_text() for text in drawn.axes[0].texts} == {"0.20", "×"}


def test_the_diagrams_name_their_cells_as_the_picture_reads_them():
    grid = [f"d = {d}, n = {n}" for d in Diagram(way="sam").dimensions for n in (24, 72)]
    rates = [f"η = {rate:g}, scale = {scale:g}" for rate in Scales().rates for scale in (0.1, 3)]
    for names in (grid, rates):
        assert len(cells(summary("x", dict.fromkeys(names)))) == len(names)


@pytest.mark.slow
def test_the_picture_has_a_panel_for_each_committed_diagram():
    committed = {s.experiment for s in SUMMARIES if s.experiment.startswith("question2/diagram-")}
    assert committed
    assert len([ax for ax in diagrams(SUMMARIES).axes if ax.axison]) == len(committed)


def test_diagrams_of_no_row_are_refused_in_a_sentence():
    with pytest.raises(FlattestError, match="no diagram to draw"):
        diagrams([s for s in SUMMARIES if "/diagram-" not in s.experiment])


def test_a_way_that_was_not_run_says_so():
    """Beside each way stands the number of its seeds."""
    others = [s for s in SUMMARIES if not s.experiment.endswith("-bias-sam")]
    panel, _, sim_bn, *_ = ways(others).axes
    said = dict(zip(WAYS, [text.get_text() for text in panel.texts], strict=True))
    assert said["sam"] == "not run"
    assert said["sam-kept"] == "5 seeds"
    assert "not built" in [text.get_text() for text in sim_bn.texts]
