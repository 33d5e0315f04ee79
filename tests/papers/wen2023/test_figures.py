"""The figures of wen2023, drawn from results."""

import numpy as np
import pytest

from flattest.errors import FlattestError
from flattest.experiments.registry import experiment, figures
from flattest.problem.models import largest_neurons
from flattest.report.figure import save
from flattest.training.run import Run


def trained(seed=0, epochs=20, params=None):
    epoch = np.arange(epochs, dtype=float)
    names = ("test_error", "train_error", "sharpness", "bound")
    series = {"epoch": epoch} | {name: np.linspace(1, 0.1, epochs) + seed for name in names}
    return Run(seed=seed, status="finished", series=series, params=params)


def test_a_panel_shows_the_median_the_range_and_the_bound(tmp_path):
    drawn = figures("wen2023/fig4b")["fig4b"]([trained(0), trained(1), trained(2)])
    errors, sharpness = drawn.axes
    assert [line.get_label() for line in errors.lines] == ["test error", "train error"]
    np.testing.assert_allclose(errors.lines[0].get_ydata(), trained(1)["test_error"])
    assert sharpness.lines[1].get_linestyle() == "--"
    assert [path.suffix for path in save(drawn, tmp_path, "fig4b")] == [".png", ".svg", ".pdf"]


def test_figure_2b_lists_the_largest_neurons():
    W1 = np.array([[3.0, -3.0, 0.0, 0.0], [0.1, 0.1, 0.1, 0.1], [5.0, 5.0, 3.0, 4.0]])
    np.testing.assert_allclose(largest_neurons(W1, 2), [[5, 5, 5], [3, -3, 0]])
    (figure,) = figures("wen2023/fig2b").values()
    assert figure([trained(params={"W1": W1})]).axes
    with pytest.raises(FlattestError, match="did not keep"):
        figure([trained()])


def test_figure_3_draws_every_cap_at_every_epsilon():
    task = experiment("wen2023/fig3").quick.task
    series = {name: np.asarray(value) for name, value in task.compute(0).items()}
    drawn = figures("wen2023/fig3")["fig3"]([Run(seed=0, status="finished", series=series)])
    assert [len(ax.patches) for ax in drawn.axes] == [task.n] * len(task.shares)
