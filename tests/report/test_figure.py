"""Figures on disk."""

import pytest
from matplotlib.figure import Figure
from msgspec.structs import replace

from flattest.experiments.registry import papers
from flattest.lab.summary import Spread, Summary, read_summaries
from flattest.ledger.figures import RESULTS
from flattest.report.ends import ends
from flattest.report.figure import named_rows, ranges, save
from support.pictures import differing
from support.places import ROOT


def drawn(median):
    figure = Figure(figsize=(2, 1))
    ax = figure.subplots()
    ranges(ax, {0: Spread(median, 0.25, 0.75), 1: Spread(0.2, 0.2, 0.2)}, "k", "test error")
    named_rows(ax, {0: "first", 1: "second"})
    return figure


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    found = [[p.read_bytes() for p in save(drawn(0.5), tmp_path / name, "a")] for name in "ab"]
    assert found[0] == found[1]
    assert found[0] != [p.read_bytes() for p in save(drawn(0.625), tmp_path / "c", "a")]


def test_a_range_goes_from_the_least_to_the_largest_and_the_first_row_is_on_top():
    (ax,) = drawn(0.5).axes
    (bar, _) = ax.collections[0].get_segments()
    assert [tuple(point) for point in bar] == [(0.25, 0), (0.75, 0)]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["first", "second"]
    assert ax.yaxis_inverted()


def test_where_runs_ended_is_drawn_over_the_bound_and_below_0_too():
    columns = {
        "sharpness": Spread(1.0, -0.5, 3.0),
        "bound": Spread(2.0, 2.0, 2.0),
        "test_error": Spread(0.25, 0.125, 0.5),
    }
    ended = Summary(
        *("wen2023/fig5b", "", "", "", "full", 3, {}, 1.0, "", "", 3), columns=columns, verdicts=()
    )
    sharpness, error = ends([ended, replace(ended, columns={})]).axes
    assert sharpness.collections[0].get_segments()[0][:, 0].tolist() == [-0.25, 1.5]
    assert error.collections[0].get_segments()[0][:, 0].tolist() == [0.125, 0.5]
    assert [text.get_text() for text in error.texts] == ["3 seeds"]


@pytest.mark.slow
def test_where_the_runs_of_wen2023_ended_is_drawn_from_the_committed_results(tmp_path):
    committed = read_summaries(papers()["wen2023"].folder / RESULTS)
    kept = ROOT / "docs" / "figures" / "wen2023" / "ends.png"
    assert differing(ends(committed), kept, tmp_path) <= 0.01
    assert differing(ends(committed[1:]), kept, tmp_path) > 0.01
