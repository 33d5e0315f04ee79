"""Figures of mulayoff2021: drawn from results, by the command from the store."""

from pathlib import Path

import numpy as np
import pytest

from flattest.cli.plot import command
from flattest.errors import FlattestError
from flattest.experiments.registry import experiment, figures
from flattest.papers.mulayoff2021.experiments import InitMagnitudes, StepSizeSweep
from flattest.report.figure import save
from flattest.runs.run import run_experiments
from flattest.runs.store import Store
from flattest.training.run import Run

SMALL = {"n": 4, "width": 12, "init_factor": 5.0, "warmup": 2_000, "steps": 50_000, "settle": 100}
SWEEP = StepSizeSweep(**SMALL, count=8, lowest=0.01, highest=0.3)


def result(task, **changed):
    return Run(seed=0, status="finished", series=task.compute(0) | changed)


def test_the_sweep_has_its_three_figures():
    found = result(SWEEP)
    drawn = {name: draw([found]) for name, draw in figures("mulayoff2021/sweep").items()}
    assert set(drawn) == {"sweep", "functions", "second-derivatives"}
    (axes,) = drawn["sweep"].axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    top = r"$\lambda_{\max}$"
    assert set(lines) >= {r"$2/\eta$", top, r"$1 + 2\int|f''|g$"}
    np.testing.assert_array_equal(lines[top].get_ydata(), found["sharpness"])
    assert len(drawn["functions"].axes) == 6


def test_a_sweep_in_which_nothing_converged_has_no_functions_to_draw():
    found = result(SWEEP, sharpness=np.full(8, np.nan))
    with pytest.raises(FlattestError, match="No run"):
        figures("mulayoff2021/sweep")["functions"]([found])


def test_there_is_a_curve_for_every_scale_of_the_initialization():
    task = InitMagnitudes(**SMALL, count=4, lowest=0.01, highest=0.3, factors=(2.0, 5.0))
    drawn = figures("mulayoff2021/init-magnitudes")["init-magnitudes"]([result(task)])
    assert [line.get_label() for line in drawn.axes[0].get_lines()] == [
        r"$2/\eta$",
        r"init $\times\ 2$",
        r"init $\times\ 5$",
    ]


@pytest.mark.slow
def test_the_command_draws_what_the_store_has(tmp_path: Path):
    store = Store.create(tmp_path / "store")
    with pytest.raises(FlattestError, match="no finished quick run"):
        command(("mulayoff2021/figure1",), folder=store.root, out=tmp_path)
    run_experiments([experiment("mulayoff2021/figure1")], "quick", store, seeds=1, workers=1)
    assert command(("mulayoff2021/figure1",), folder=store.root, out=tmp_path) == 0
    for suffix in ("png", "svg", "pdf"):
        assert (tmp_path / "mulayoff2021" / f"figure1.{suffix}").stat().st_size > 10_000


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path):
    (tmp_path / "taken").write_text("")
    drawn = figures("mulayoff2021/sweep")["sweep"]([result(SWEEP)])
    with pytest.raises(FlattestError, match="Cannot write figures"):
        save(drawn, tmp_path / "taken", "sweep")
