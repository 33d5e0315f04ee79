"""The figures of vardhan2026 show the means over seeds that they say they show."""

import numpy as np
import pytest

from flattest.experiments.registry import figures
from flattest.papers.vardhan2026.experiments import EXPERIMENTS
from flattest.report.figure import save
from flattest.training.run import Run

RHO = np.geomspace(0.01, 0.99, 4)


def scatter_result(seed, loss=1.0):
    series = {"correlation": RHO, "flatness": 10 / RHO + seed, "population_loss": loss / RHO}
    series |= {f"weighted_{name}": series[name] for name in ("flatness", "population_loss")}
    return Run(seed=seed, status="finished", series=series)


def test_every_panel_has_a_figure():
    drawn = [e for e in EXPERIMENTS if e.panel != "fig4c-dimensions"]
    assert all(set(figures(e.name)) == {e.panel} for e in drawn)


def test_a_scatter_shows_the_means_over_seeds_coloured_by_correlation(tmp_path):
    drawn = figures("vardhan2026/fig3-relu")["fig3-relu"]([scatter_result(s) for s in (0, 2)])
    points = drawn.axes[0].collections[-1]
    offsets = np.asarray(points.get_offsets())
    assert offsets[:, 0] == pytest.approx(10 / RHO + 1)
    assert offsets[:, 1] == pytest.approx(1 / RHO)
    assert np.asarray(points.get_array()) == pytest.approx(RHO)
    paths = save(drawn, tmp_path, "fig3-relu")
    assert all(path.stat().st_size > 1000 for path in paths)


def test_a_loss_of_zero_can_be_drawn(tmp_path):
    drawn = figures("vardhan2026/fig4b")["fig4b"]([scatter_result(0, loss=0.0)])
    assert all(path.exists() for path in save(drawn, tmp_path, "fig4b"))


def test_the_scaling_figure_names_the_fitted_powers():
    n = np.array([64.0, 128, 256])
    result = Run(seed=0, status="finished", series={"n": n, "good": n**0, "bad": 3 * n**0.5})
    drawn = figures("vardhan2026/scaling-relu")["scaling-relu"]([result])
    labels = [text.get_text() for text in drawn.axes[0].get_legend().get_texts()]
    assert any("n^{0.50}" in label for label in labels)


def test_the_figure_of_learned_weights_has_a_line_for_each_kind_and_dimension():
    experiment = next(e for e in EXPERIMENTS if e.panel == "learned-relu")
    for task in (experiment.full.task, experiment.quick.task):
        ratio = np.ones((len(task.samples), len(task.dimensions)))
        series = {"drawn": 3 * ratio, "learned": ratio}
        run = Run(seed=0, status="finished", series=series)
        (ax,) = figures("vardhan2026/learned-relu")["learned-relu"]([run]).axes
        assert len(ax.containers) == 2 * len(task.dimensions)
        assert ax.containers[0].lines[0].get_xdata() == pytest.approx(task.samples)
        assert ax.containers[0].lines[0].get_ydata() == pytest.approx(3)


def test_the_figure_of_settings_writes_the_mean_of_each():
    links = np.linspace(-1, 1, 16).reshape(4, 4)
    runs = [Run(seed=0, status="finished", series={"connection": links + k}) for k in (-0.1, 0.1)]
    drawn = figures("vardhan2026/fig2-relu-settings")["fig2-relu-settings"](runs)
    assert [text.get_text() for text in drawn.axes[0].texts] == [f"{x:.2f}" for x in links.flat]


def test_figures_say_how_many_seeds_they_show():
    runs = [scatter_result(s) for s in (0, 2)]
    (draw,) = figures("vardhan2026/fig3-relu").values()
    assert draw(runs).get_suptitle() == "Bars are standard errors; mean of 2 seeds"
    assert draw(runs[:1]).get_suptitle() == "Seed 0"


def test_short_logarithmic_axes_have_plain_numbers_long_ones_powers():
    (draw,) = figures("vardhan2026/fig3-relu").values()
    short = [scatter_result(0) for _ in "a"]
    for run in short:
        run.series["flatness"] = np.array([12.0, 18, 40, 60])
    drawn = draw(short)
    drawn.canvas.draw()
    shown = [label.get_text() for label in drawn.axes[0].get_xticklabels()]
    assert shown == ["15", "20", "30", "40", "50"]
    assert all(
        "10^" in text.get_text() for text in draw([scatter_result(0)]).axes[1].get_xticklabels()
    )
