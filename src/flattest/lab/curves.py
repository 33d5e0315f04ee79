"""Curves of training, ready for print: errors and sharpness against epochs."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from flattest.evidence import seeds_in_words
from flattest.palette import BLUE, GREEN, INK, RED
from flattest.training.run import Run

TICKS_AT_MOST = 7


def curves(results: Sequence[Run]) -> Figure:
    """Train and test error, and the sharpness with its certified bound; median and range."""
    drawn = Figure(figsize=(9, 3.4), layout="constrained")
    errors, sharpness = drawn.subplots(1, 2)
    band(errors, results, "test_error", BLUE, "test error")
    band(errors, results, "train_error", RED, "train error")
    errors.set(ylabel="zero-one error", ylim=(-0.02, 0.6))
    band(sharpness, results, "sharpness", GREEN, r"$\mathrm{Tr}\,\nabla^2 L$")
    bound = np.median([result["bound"][-1] for result in results])
    if np.isfinite(bound):
        sharpness.axhline(bound, color=INK, linestyle="--", label=f"certified bound {bound:.4g}")
    sharpness.set_ylabel(r"sharpness $\mathrm{Tr}\,\nabla^2 L$")
    logarithmic(sharpness, results, "sharpness")
    plain_ticks(sharpness.yaxis)
    for ax in (errors, sharpness):
        epochs(ax, max(result["epoch"][-1] for result in results))
        ax.legend(frameon=False, fontsize=8)
    seeds_named(drawn, results, "Range shaded, median of")
    return drawn


def band(ax: Axes, results: Sequence[Run], series: str, colour: str, label: str) -> None:
    """The median over seeds as a line, their range as a band; up to the shortest run's end."""
    length = min(len(result["epoch"]) for result in results)
    values = np.array([result[series][:length] for result in results])
    epoch = results[0]["epoch"][:length]
    ax.plot(epoch, np.median(values, axis=0), color=colour, label=label)
    if len(results) > 1:
        low, high = values.min(axis=0), values.max(axis=0)
        ax.fill_between(epoch, low, high, color=colour, alpha=0.2, lw=0)


def epochs(ax: Axes, last: float) -> None:
    """Epochs on an axis that is linear up to 1 and logarithmic beyond: epoch 0 has its place."""
    ax.set_xscale("symlog", linthresh=1, linscale=0.5)
    ax.set(xlabel="epoch", xlim=(0, max(last, 1)))
    top = int(np.floor(np.log10(max(last, 1))))
    step = -(-(top + 1) // TICKS_AT_MOST)
    _ticks(ax.xaxis, [0, *(10.0**k for k in range(0, top + 1, step))])


def logarithmic(ax: Axes, results: Sequence[Run], series: str) -> None:
    """A logarithmic axis; where a value is not positive, linear between plus and minus the least
    size that lies within six orders of the largest, so that negative values are drawn as such."""
    values = np.concatenate([np.ravel(result[series]) for result in results])
    values = values[np.isfinite(values)]
    if not values.size or (values > 0).all():
        ax.set_yscale("log")
        return
    sizes = np.abs(values[values != 0])
    largest = sizes.max() if sizes.size else 1.0
    least = sizes[sizes >= 1e-6 * largest].min() if sizes.size else 1.0
    ax.set_yscale("symlog", linthresh=10.0 ** np.ceil(np.log10(least)))
    ax.axhline(0, color=INK, linewidth=0.6)


def plain_ticks(*axes) -> None:
    """Logarithmic axes (ax.xaxis, ax.yaxis) of up to two decades: 1, 2 and 5 times powers of ten as
    plain numbers, and more where fewer than three of them are in sight; longer ones keep their
    powers."""
    for axis in axes:
        low, high = axis.get_view_interval()
        if axis.get_scale() != "log" or not 0 < low < high or high / low > 100:
            continue
        powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
        few, many = (
            [v for v in np.outer(powers, times).ravel() if low <= v <= high]
            for times in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7))
        )
        _ticks(axis, few if len(few) > 2 else many)


def seeds_named(drawn, results: Sequence[Run], said: str) -> None:
    """Above the figure: over how many seeds `said` is taken, or which seed is shown."""
    many = f"{said} {seeds_in_words(len(results))}"
    drawn.suptitle(many if len(results) > 1 else f"Seed {results[0].seed}", fontsize=9)


def _ticks(axis, places: Sequence[float]) -> None:
    axis.set_major_locator(FixedLocator(places))
    axis.set_minor_locator(NullLocator())
    powers = all(_is_power(place) for place in places if place)
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value, powers)))


def tick_text(value: float, powers: bool) -> str:
    """On an axis of powers of ten a power from 10⁴ on; else the plain number."""
    if powers and value >= 1e4:
        return rf"$10^{{{np.log10(value):.0f}}}$"
    return f"{value:.0f}" if value >= 1 and value == round(value) else f"{value:g}"


def _is_power(value: float) -> bool:
    return bool(np.log10(value) == round(np.log10(value)))
