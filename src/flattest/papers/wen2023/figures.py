"""The figures of wen2023: errors and sharpness against epochs, Figure 2b's neurons, Figure 3."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

import flattest as ft
from flattest.experiments.training import Training
from flattest.lab.curves import curves, seeds_named
from flattest.palette import BLUE, INK, RED
from flattest.papers.wen2023.experiments import EXPERIMENTS
from flattest.problem.models import largest_neurons


def neurons(results: Sequence[ft.Run]) -> Figure:
    """Figure 2b: the four neurons of largest norm, and the norms of W1's columns, first seed."""
    drawn = Figure(figsize=(9, 3.2), layout="constrained")
    table, columns = drawn.subplots(1, 2)
    params = results[0].params
    if params is None:
        raise ft.FlattestError("Figure 2b is drawn from parameters, which these runs did not keep.")
    W1 = np.asarray(params["W1"], float)
    table.axis("off")
    shown = table.table(
        cellText=[[f"{v:.3f}" for v in row] for row in largest_neurons(W1)],
        colLabels=["$W_1[1]$", "$W_1[2]$", r"$\|W_1[3{:}d]\|$"],
        loc="center",
    )
    shown.scale(1, 1.8)
    columns.bar(np.arange(1, W1.shape[1] + 1), np.linalg.norm(W1, axis=0), color=BLUE)
    columns.set(xlabel="input", ylabel="norm of the column of $W_1$")
    seeds_named(drawn, results[:1], "")
    return drawn


def memorizer_on_the_circle(results: Sequence[ft.Run]) -> Figure:
    """Figure 3: the caps in which each neuron is active, for ε from its largest value down."""
    result = results[0]
    drawn = Figure(figsize=(10, 3.6), layout="constrained")
    for ax, half, covered in zip(
        np.atleast_1d(drawn.subplots(1, len(result["half_angle"]))),
        result["half_angle"],
        result["covered"],
        strict=True,
    ):
        _draw_circle(ax, result["angle"], half)
        largest = f"{1 - np.cos(half.max()):.1g}"
        ax.set_title(rf"$\varepsilon = {largest}$: {covered:.0%} of the circle", fontsize=10)
    return drawn


def _draw_circle(ax: Axes, angles: np.ndarray, half: np.ndarray) -> None:
    turn = np.linspace(0, 2 * np.pi, 400)
    ax.plot(np.cos(turn), np.sin(turn), color=INK, lw=0.8)
    for angle, width in zip(angles, half, strict=True):
        arc = np.linspace(angle - width, angle + width, 60)
        cap = np.column_stack([np.cos(arc), np.sin(arc)])
        ax.add_patch(Polygon(cap, color=BLUE, alpha=0.4, lw=0))
    ax.plot(np.cos(angles), np.sin(angles), "o", color=RED, ms=4)
    ax.set_aspect("equal")
    ax.axis("off")


FIGURES = {e.name: {e.panel: curves} for e in EXPERIMENTS if isinstance(e.full.task, Training)} | {
    "wen2023/fig2b": {"fig2b": neurons},
    "wen2023/fig3": {"fig3": memorizer_on_the_circle},
}
