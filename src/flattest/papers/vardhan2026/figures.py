"""The figures of vardhan2026: flatness against population loss, and the scaling laws."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

import flattest as ft
from flattest.lab.curves import plain_ticks, seeds_named
from flattest.palette import BLUE, RED
from flattest.papers.vardhan2026.experiments import (
    EXPERIMENTS,
    Learned,
    Scaling,
    Scatter,
    Settings,
)

SAID = "Bars are standard errors; mean of"
PANELS = (
    ("flatness", "population_loss", r"minimizer of $\|a\|_p^p$, Eq. (3)"),
    ("weighted_flatness", "weighted_population_loss", r"minimizer of $S_{\min}$"),
)


def scatter(results: Sequence[ft.Run]) -> Figure:
    """Figures 2–4: S_min against the population loss, one point per ρ, averaged over seeds.

    Bars are standard errors over seeds.
    """
    drawn = Figure(figsize=(9, 3.8), layout="constrained")
    axes = drawn.subplots(1, 2, sharey=True)
    rho = results[0]["correlation"]
    for ax, (x, y, title) in zip(axes, PANELS, strict=True):
        points = draw_points(ax, results, x, y, rho)
        ax.set(title=title, xlabel=r"flatness $S_{\min}$", xscale="log")
        plain_ticks(ax.xaxis, ax.yaxis)
    axes[0].set_ylabel("population loss")
    drawn.colorbar(points, ax=axes, label=r"correlation $\rho$")
    seeds_named(drawn, results, SAID)
    return drawn


def draw_points(ax: Axes, results: Sequence[ft.Run], x: str, y: str, rho: np.ndarray):
    (mean_x, error_x), (mean_y, error_y) = (averaged(results, name) for name in (x, y))
    ax.errorbar(mean_x, mean_y, error_y, error_x, fmt="none", ecolor="0.7", linewidth=1)
    if mean_y.max() > 1e-12:
        ax.set_yscale("log")
    else:  # 0 to rounding (Figure 4b), which has no place on a logarithmic axis
        ax.set_ylim(-0.1, 1)
    norm = LogNorm(rho.min(), rho.max())
    return ax.scatter(mean_x, mean_y, c=rho, cmap="viridis", norm=norm, zorder=3)


def averaged(results: Sequence[ft.Run], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over seeds; the error is 0 for a single seed."""
    values = np.array([result[name] for result in results])
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])
    return values.mean(axis=0), spread / np.sqrt(len(values))


def scaling(results: Sequence[ft.Run]) -> Figure:
    """‖a‖_p^p of the flattest interpolator against n, good and bad, with their fitted powers."""
    drawn = Figure(figsize=(5, 3.8), layout="constrained")
    ax = drawn.subplots()
    n = results[0]["n"]
    for name, colour in (("good", BLUE), ("bad", RED)):
        mean, error = averaged(results, name)
        slope, offset = np.polyfit(np.log(n), np.log(mean), 1)
        label = f"{name} inner weights, $n^{{{slope:.2f}}}$"
        ax.errorbar(n, mean, error, fmt="o", color=colour, label=label)
        ax.plot(n, np.exp(offset) * n**slope, color=colour, linewidth=1)
    ax.set(xscale="log", yscale="log", xlabel="$n$ ($m = 3n$, $d = 2n$)", ylabel=r"$\|a\|_p^p$")
    ax.set_xticks(n, [f"{size:.0f}" for size in n])
    ax.set_xticks([], minor=True)
    plain_ticks(ax.yaxis)
    ax.legend(frameon=False)
    seeds_named(drawn, results, SAID)
    return drawn


def learned(results: Sequence[ft.Run], tasks: Sequence[Learned]) -> Figure:
    """S_min of bad inner weights over the teacher's against n/d: drawn, and learned from the data.

    One line for each d, the mean over seeds; bars are standard errors. The runs are those of one of
    the tasks.
    """
    shape = results[0]["learned"].shape
    task = next(t for t in tasks if (len(t.samples), len(t.dimensions)) == shape)
    drawn = Figure(figsize=(5, 3.8), layout="constrained")
    ax = drawn.subplots()
    for name, colour in (("drawn", RED), ("learned", BLUE)):
        mean, error = averaged(results, name)
        for column, d in enumerate(task.dimensions):
            ax.errorbar(
                task.samples,
                mean[:, column],
                error[:, column],
                fmt="o-",
                color=colour,
                alpha=0.4 + 0.6 * (column + 1) / len(task.dimensions),
                label=f"{name}, $d = {d}$",
            )
    ax.axhline(1, color="0.7", linewidth=1)
    ax.set(xscale="log", yscale="log", xlabel="$n/d$", ylabel=r"$S_{\min}$ over the teacher's")
    ax.set_xticks(task.samples, [f"{k:g}" for k in task.samples])
    ax.set_xticks([], minor=True)
    plain_ticks(ax.yaxis)
    ax.legend(frameon=False, fontsize=7)
    seeds_named(drawn, results, SAID)
    return drawn


def settings(results: Sequence[ft.Run], tasks: Sequence[Settings]) -> Figure:
    """Spearman's correlation of flatness and loss over ρ for each noise and offset, the mean.

    The runs are those of one of the tasks.
    """
    drawn = Figure(figsize=(4.5, 3.4), layout="constrained")
    ax = drawn.subplots()
    mean, _ = averaged(results, "connection")
    task = next(t for t in tasks if (len(t.noises), len(t.offsets)) == mean.shape)
    shown = ax.imshow(mean, cmap="RdBu", vmin=-1, vmax=1)
    for (row, column), link in np.ndenumerate(mean):
        colour = "white" if abs(link) > 0.7 else "black"
        ax.text(column, row, f"{link:.2f}", color=colour, ha="center", va="center", fontsize=8)
    ax.set_xticks(range(len(task.offsets)), [f"{offset:g}" for offset in task.offsets])
    ax.set_yticks(range(len(task.noises)), [f"{noise:g}" for noise in task.noises])
    ax.set(xlabel="offset", ylabel="noise")
    drawn.colorbar(shown, ax=ax, label="rank correlation of flatness and loss")
    seeds_named(drawn, results, "Mean of")
    return drawn


DRAWINGS: dict[type, Callable[..., Figure]] = {
    Scatter: scatter,
    Scaling: scaling,
    Learned: learned,
    Settings: settings,
}


def _drawing(e: ft.Experiment) -> Callable[[Sequence[ft.Run]], Figure] | None:
    """How the runs of an experiment are drawn, if they are."""
    draw = DRAWINGS.get(type(e.full.task))
    if draw in (learned, settings):
        return partial(draw, tasks=(e.full.task, e.quick.task))
    return draw


FIGURES = {e.name: {e.panel: draw} for e in EXPERIMENTS if (draw := _drawing(e))}
