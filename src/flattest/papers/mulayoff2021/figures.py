"""The figures of mulayoff2021."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import flattest as ft
from flattest.lab.curves import plain_ticks, seeds_named
from flattest.palette import BLUE, GREEN, INK, ORANGE, RED
from flattest.stability.functions import UnivariateNetwork
from flattest.stability.weights import g

SHOWN = 6


def two_step_sizes(results: Sequence[ft.Run]) -> Figure:
    """Figure 1: the two functions, their f″, and loss and sharpness along the way."""
    result = results[0]
    drawn = Figure(figsize=(12, 3.6), layout="constrained")
    function, kinks, loss, sharpness = drawn.subplots(1, 4)
    for run, (lr, colour) in enumerate(zip(result["lr"], (INK, GREEN), strict=True)):
        label = rf"$\eta = {number(lr)}$" if run == 0 else f"then ${number(lr)}$"
        draw_function(function, result, run, colour, label)
        draw_kinks(kinks, result, run, colour)
        loss.loglog(result["epoch"], result["train_loss"][:, run], color=colour, label=label)
        sharpness.loglog(result["epoch"], result["sharpness_trace"][:, run], color=colour)
        sharpness.axhline(2 / lr, color=colour, linestyle=":")
    draw_weight(kinks, result)
    function.legend(frameon=False)
    function.set(title="$f$ and the data", xlabel="$x$")
    kinks.set(title=r"$|f''|$ at the knots; $g$ shaded", xlabel="$x$", yscale="log")
    loss.set(title="$L$", xlabel="iteration")
    sharpness.set(title=r"$\lambda_{\max}$; $2/\eta$ dotted", xlabel="iteration")
    plain_ticks(sharpness.yaxis)
    seeds_named(drawn, results[:1], "")
    return drawn


def sharpness_against_step_size(results: Sequence[ft.Run]) -> Figure:
    """Figure 3 of Section 5: λ_max, the flattest implementation's, the bound, and 2/η."""
    drawn = Figure(figsize=(4.2 * len(results), 4), layout="constrained")
    for ax, result in zip(np.atleast_1d(drawn.subplots(1, len(results))), results, strict=True):
        lr = result["lr"]
        ax.loglog(lr, result["threshold"], color=INK, linestyle="--", label=r"$2/\eta$")
        for name, colour, label in (
            ("sharpness", RED, r"$\lambda_{\max}$"),
            ("flattest", BLUE, r"$\lambda_{\max}$, flattest implementation"),
            ("bound", GREEN, r"$1 + 2\int|f''|g$"),
        ):
            ax.loglog(lr, result[name], ".", color=colour, label=label, markersize=4)
        counts = (
            f"{int(result[name][0])}" for name in ("excluded_in_warmup", "excluded_unconverged")
        )
        title = "Seed {}; left out: {} that converged in the warm-up, {} that did not at all"
        ax.set_title(title.format(result.seed, *counts), fontsize=8)
        ax.set_xlabel(r"step size $\eta$")
        plain_ticks(ax.xaxis, ax.yaxis)
        ax.legend(frameon=False, fontsize=8)
    return drawn


def functions(results: Sequence[ft.Run]) -> Figure:
    """Supplement, Figure 1: interpolating functions for several step sizes."""
    result = results[0]
    drawn, axes = panels()
    for ax, run in zip(axes, spread_out(result), strict=True):
        draw_function(ax, result, run, BLUE, "")
        ax.set(title=rf"$\eta = {number(result['lr'][run])}$", xlabel="$x$")
    seeds_named(drawn, results[:1], "")
    return drawn


def second_derivatives(results: Sequence[ft.Run]) -> Figure:
    """Supplement, Figure 2: |f″| of the functions of Figure 1, with g."""
    result = results[0]
    drawn, axes = panels()
    for ax, run in zip(axes, spread_out(result), strict=True):
        draw_kinks(ax, result, run, BLUE)
        draw_weight(ax, result)
        lr, variation = result["lr"][run], result["variation"][run]
        title = rf"$\eta = {number(lr)}$, $\int|f''|g = {variation:.3g}$"
        ax.set(title=title, xlabel="$x$", yscale="log")
    seeds_named(drawn, results[:1], "")
    return drawn


def sharpness_for_init_magnitudes(results: Sequence[ft.Run]) -> Figure:
    """Supplement, Figure 3: sharpness curves for several scales of the initialization."""
    result = results[0]
    drawn = Figure(figsize=(5.5, 4), layout="constrained")
    ax = drawn.subplots()
    ax.loglog(result["lr"][0], result["threshold"][0], color=INK, linestyle="--", label=r"$2/\eta$")
    shades = np.linspace(0.15, 0.9, result["factor"].size)
    for row, (factor, shade) in enumerate(zip(result["factor"], shades, strict=True)):
        colour = (0.9 * (1 - shade), 0.35 + 0.3 * shade, 0.7)
        curve = result["sharpness"][row]
        ax.loglog(result["lr"][row], curve, ".-", color=colour, label=rf"init $\times\ {factor:g}$")
    ax.set(
        xlabel=r"step size $\eta$",
        ylabel=r"$\lambda_{\max}$",
        title=f"Sharpness for scales of the initialization, seed {result.seed}",
    )
    plain_ticks(ax.xaxis, ax.yaxis)
    ax.legend(frameon=False, fontsize=8)
    return drawn


def number(value: float) -> str:
    """Two digits, for mathtext: below a thousandth a power of ten, never an e."""
    digits, _, power = f"{value:.1e}".partition("e")
    if int(power) >= -3:
        return f"{value:.2g}"
    times = "" if digits == "1.0" else rf"{float(digits):g}\cdot "
    return rf"{times}10^{{{int(power)}}}"


def panels() -> tuple[Figure, np.ndarray]:
    drawn = Figure(figsize=(11, 5.5), layout="constrained")
    return drawn, drawn.subplots(2, SHOWN // 2, sharex=True, sharey=True).ravel()


def spread_out(result: ft.Run) -> np.ndarray:
    """Runs that count, evenly spread over the step sizes."""
    counted = np.flatnonzero(~np.isnan(result["sharpness"]))
    if counted.size == 0:
        raise ft.FlattestError("No run of this sweep converged, so there are no functions to draw.")
    return counted[np.linspace(0, counted.size - 1, SHOWN).astype(int)]


def draw_function(ax: Axes, result: ft.Run, run: int, colour: str, label: str) -> None:
    x = np.linspace(result["x"].min() - 0.05, result["x"].max() + 0.05, 800)
    ax.plot(
        x,
        UnivariateNetwork.from_theta(result["theta"][run])(x),
        color=colour,
        linewidth=1.2,
        label=label,
    )
    ax.plot(result["x"], result["y"], "o", color=ORANGE, markersize=5, zorder=3)


def draw_kinks(ax: Axes, result: ft.Run, run: int, colour: str) -> None:
    """|f″|: the masses at the knots within the data."""
    curvature = ft.second_derivative(UnivariateNetwork.from_theta(result["theta"][run]))
    inside = (curvature.knots > result["x"].min()) & (curvature.knots < result["x"].max())
    ax.vlines(curvature.knots[inside], 1e-3, np.abs(curvature.masses[inside]), color=colour, lw=1.2)


def draw_weight(ax: Axes, result: ft.Run) -> None:
    """g, on an axis of its own."""
    x = np.linspace(result["x"].min(), result["x"].max(), 400)
    beside = ax.twinx()
    beside.fill_between(x, g(x, result["x"]), color=ORANGE, alpha=0.25, linewidth=0)
    beside.set(ylim=(0, None), yticks=[])


FIGURES = {
    "mulayoff2021/figure1": {"figure1": two_step_sizes},
    "mulayoff2021/sweep": {
        "sweep": sharpness_against_step_size,
        "functions": functions,
        "second-derivatives": second_derivatives,
    },
    "mulayoff2021/init-magnitudes": {"init-magnitudes": sharpness_for_init_magnitudes},
}
