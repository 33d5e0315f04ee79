"""The pictures of what is committed of vardhan2026."""

import pytest

from flattest.experiments.registry import papers
from flattest.lab.summary import read_summaries
from flattest.ledger.figures import RESULTS
from flattest.papers.vardhan2026.experiments import NOISES, OFFSETS
from flattest.papers.vardhan2026.picture import ends, settings

SUMMARIES = read_summaries(papers()["vardhan2026"].folder / RESULTS)


def called(panel):
    return next(s for s in SUMMARIES if s.experiment == f"vardhan2026/{panel}")


def test_a_cell_of_the_settings_is_the_median_of_its_noise_and_offset():
    panel, *_ = settings(SUMMARIES).axes
    said = [text.get_text() for text in panel.texts]
    assert len(said) == len(NOISES) * len(OFFSETS)
    found = called("fig2-relu-settings").column("noise 0.1, offset 0.3")
    assert said[3 * len(OFFSETS) + 2] == f"{found.median:.2f}"


def test_an_end_is_drawn_at_its_median_with_its_range_over_seeds():
    panel = next(ax for ax in ends(SUMMARIES).axes if ax.get_title().startswith("fig4a,"))
    flatness = called("fig4a").column("flatness, least ρ")
    across = panel.containers[0].lines[2][0].get_segments()[0]
    assert across[:, 0].tolist() == pytest.approx([flatness.low, flatness.high])


def test_losses_of_0_to_rounding_are_on_a_linear_axis():
    scales = {ax.get_title().partition(",")[0]: ax.get_yscale() for ax in ends(SUMMARIES).axes[:13]}
    assert {name for name, scale in scales.items() if scale == "linear"} == {"fig4b"}
