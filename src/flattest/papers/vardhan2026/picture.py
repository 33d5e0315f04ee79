"""What the committed results of vardhan2026 come to, drawn from their medians; no run is needed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flattest.evidence import seeds_in_words
from flattest.lab.curves import plain_ticks
from flattest.lab.summary import Spread, Summary
from flattest.palette import BLUE, GREEN, INK, RED
from flattest.papers.vardhan2026.experiments import EXPERIMENTS, NOISES, OFFSETS
from flattest.report.figure import named_rows, ranges

ACROSS = 4
ENDS = {
    ("flatness, least ρ", "loss, least ρ"): (r"least $\rho$", "o", RED),
    ("flatness, largest ρ", "loss, largest ρ"): (r"largest $\rho$", "s", BLUE),
    ("least flatness", "loss of the flattest"): ("the flattest", "^", GREEN),
}
SETTINGS = {"relu": "ReLU", "leaky-relu": "LeakyReLU", "quadratic": "quadratic"}
LEARNED = {"learned-relu": "ReLU", "learned-relu-wide": "ReLU", "learned-quadratic": "quadratic"}


def ends(summaries: Sequence[Summary]) -> Figure:
    """Figures 2 to 4: flatness and population loss of the flattest interpolators at the least ρ, at
    the largest, and of the flattest of all; a panel for each figure."""
    shown = [s for s in summaries if "loss of the flattest" in s.columns]
    rows = -(-len(shown) // ACROSS)
    drawn = Figure(figsize=(9, 2.1 * rows), layout="constrained")
    axes = drawn.subplots(rows, ACROSS).ravel()
    for ax, summary in zip(axes, shown, strict=False):
        for (flatness, loss), (label, marker, colour) in ENDS.items():
            _point(ax, summary.column(flatness), summary.column(loss), label, marker, colour)
        ax.set_xscale("log")
        if summary.column("loss of the flattest").median > 1e-12:
            ax.set_yscale("log")
        else:  # 0 to rounding (Figure 4b), which has no place on a logarithmic axis
            ax.set_ylim(-0.1, 1)
        ax.margins(0.2)
        plain_ticks(ax.xaxis, ax.yaxis)
        ax.minorticks_off()
        ax.tick_params(labelsize=7)
        ax.set_title(f"{summary.experiment.partition('/')[2]}, {seeds_in_words(summary.seeds)}")
        ax.title.set_size(8)
    for ax in axes[len(shown) :]:
        ax.axis("off")
    axes[-1].legend(*axes[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="center")
    drawn.supxlabel(r"flatness $S_{\min}$", fontsize=9)
    drawn.supylabel("population loss", fontsize=9)
    drawn.suptitle("Median over seeds; bars are the range", fontsize=9)
    return drawn


def _point(ax: Axes, x: Spread, y: Spread, label: str, marker: str, colour: str) -> None:
    _medians(ax, [x.median], [y], _reach([x]), fmt=marker, ms=5, lw=1, color=colour, label=label)


def _medians(ax: Axes, x: Sequence[float], y: Sequence[Spread], across=None, **look: Any) -> None:
    """Medians with their ranges as bars."""
    ax.errorbar(x, [spread.median for spread in y], _reach(y), across, capsize=2, **look)


def _reach(spreads: Sequence[Spread]) -> list[list[float]]:
    """How far ranges go below their medians, and above."""
    return [[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]


def settings(summaries: Sequence[Summary]) -> Figure:
    """Rank correlation of flatness and loss over ρ for each noise and offset, a panel each σ."""
    drawn = Figure(figsize=(9, 2.9), layout="constrained")
    axes = drawn.subplots(1, len(SETTINGS), sharey=True)
    for ax, (name, title) in zip(axes, SETTINGS.items(), strict=True):
        found = _called(summaries, f"fig2-{name}-settings")
        links = [[found.column(setting(n, o)).median for o in OFFSETS] for n in NOISES]
        shown = ax.imshow(links, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
        for (row, column), link in np.ndenumerate(links):
            colour = "white" if abs(link) > 0.7 else "black"
            ax.text(column, row, f"{link:.2f}", color=colour, ha="center", va="center", fontsize=9)
        ax.set_xticks(range(len(OFFSETS)), [f"{offset:g}" for offset in OFFSETS])
        ax.set_yticks(range(len(NOISES)), [f"{noise:g}" for noise in NOISES])
        ax.set(title=title, xlabel="offset")
    axes[0].set_ylabel("noise")
    drawn.colorbar(shown, ax=axes, label="rank correlation")
    drawn.suptitle(f"Flatness and loss: median of {seeds_in_words(found.seeds)}", fontsize=9)
    return drawn


def setting(noise: float, offset: float) -> str:
    return f"noise {noise:g}, offset {offset:g}"


def learned(summaries: Sequence[Summary]) -> Figure:
    """S_min of bad inner weights over the teacher's against n/d: drawn, and learned from the data,
    in the largest dimension of each experiment."""
    drawn = Figure(figsize=(9, 3.1), layout="constrained")
    for ax, (name, activation) in zip(drawn.subplots(1, 3), LEARNED.items(), strict=True):
        summary, task = _called(summaries, name), _task(name)
        for kind, colour in (("drawn", RED), ("learned", BLUE)):
            _over_samples(ax, summary, kind, task.samples, colour)
        ax.axhline(1, color=INK, lw=0.8, ls="--")
        ax.set(xscale="log", yscale="log", xlabel="$n/d$")
        ax.set_title(f"{activation}, $d = {task.dimensions[-1]}$, {seeds_in_words(summary.seeds)}")
        ax.title.set_size(9)
        ax.set_xticks(task.samples, [f"{k:g}" for k in task.samples])
        ax.set_xticks([], minor=True)
        plain_ticks(ax.yaxis)
    drawn.axes[0].set_ylabel(r"$S_{\min}$ over the teacher's")
    drawn.axes[0].legend(frameon=False, fontsize=8)
    drawn.suptitle("Median and range over seeds; dashed: as flat as the teacher", fontsize=9)
    return drawn


def _over_samples(ax: Axes, summary: Summary, kind: str, samples: Sequence[float], colour: str):
    found = [summary.column(f"{kind}, n = {k:g}d") for k in samples]
    _medians(ax, samples, found, fmt="o-", ms=4, lw=1.2, color=colour, label=kind)


def exponents(summaries: Sequence[Summary]) -> Figure:
    """The fitted exponents of ‖a‖_p^p in n, good and bad inner weights, and those expected."""
    rows = [s for s in summaries if "gap, expected" in s.columns]
    drawn = Figure(figsize=(7, 0.34 * len(rows) + 1.1), layout="constrained")
    ax = drawn.subplots()
    for name, colour, shift in (("good", BLUE, -0.14), ("bad", RED, 0.14)):
        places = [i + shift for i in range(len(rows))]
        ranges(ax, {y: s.column(name) for y, s in zip(places, rows, strict=True)}, colour, name)
        expected = [s.column(f"{name}, expected").median for s in rows]
        ax.plot(expected, places, "|", color=INK, ms=11, label=None if shift < 0 else "expected")
    for i, s in enumerate(rows):
        ax.text(0.79, i, seeds_in_words(s.seeds), ha="right", va="center", size=7, color=INK)
    named_rows(ax, {i: s.experiment.partition("/scaling-")[2] for i, s in enumerate(rows)})
    ax.set(xlabel=r"exponent of $\|a\|_p^p$ in $n$: median and range over seeds", xlim=(-0.4, 0.8))
    ax.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    return drawn


def _called(summaries: Sequence[Summary], panel: str) -> Summary:
    return next(s for s in summaries if s.experiment == f"vardhan2026/{panel}")


def _task(panel: str):
    return next(e for e in EXPERIMENTS if e.panel == panel).full.task


PICTURES = {"ends": ends, "settings": settings, "learned": learned, "exponents": exponents}
