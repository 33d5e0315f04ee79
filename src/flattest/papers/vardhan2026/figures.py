"""The figures of vardhan2026: flatness against population loss, and the scaling laws."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

import flattest as ft
from flattest.palette import BLUE, RED
from flattest.papers.vardhan2026.experiments import EXPERIMENTS, Scaling, Scatter

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
    axes[0].set_ylabel("population loss")
    drawn.colorbar(points, ax=axes, label="correlation ρ")
    return drawn


def draw_points(ax: Axes, results: Sequence[ft.Run], x: str, y: str, rho: np.ndarray):
    (mean_x, error_x), (mean_y, error_y) = (averaged(results, name) for name in (x, y))
    ax.errorbar(mean_x, mean_y, error_y, error_x, fmt="none", ecolor="0.7", linewidth=1)
    if mean_y.max() > 1e-12:
        ax.set_yscale("log")
    else:  # 0 to rounding (Figure 4b), which has no place on a logarithmic axis
        ax.set_ylim(-0.1, 1)
    ax.tick_params(axis="x", which="minor", labelsize=7)
    norm = LogNorm(rho.min(), rho.max())
    return ax.scatter(mean_x, mean_y, c=rho, cmap="viridis", norm=norm, zorder=3)


def averaged(results: Sequence[ft.Run], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over seeds; the error is 0 for a single seed."""
    values = np.array([result[name] for result in results])
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
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
    ax.set(xscale="log", yscale="log", xlabel="n (m = 3n, d = 2n)", ylabel=r"$\|a\|_p^p$")
    ax.set_xticks(n, [f"{size:.0f}" for size in n])
    ax.set_xticks([], minor=True)
    ax.legend(frameon=False)
    return drawn


FIGURES = {
    e.name: {e.panel: draw}
    for e in EXPERIMENTS
    for kind, draw in ((Scatter, scatter), (Scaling, scaling))
    if isinstance(e.full.task, kind)
}
