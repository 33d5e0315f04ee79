"""Phase diagrams as heat maps."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flattest.lab.sweep import Diagram


def phase_diagrams(diagrams: Sequence[Diagram]) -> Figure:
    """Heat maps side by side; where n and d are varied, Theorem 3.1's line n = d log d in it."""
    drawn = Figure(figsize=(4.6 * len(diagrams), 4), layout="constrained")
    for ax, diagram in zip(np.atleast_1d(drawn.subplots(1, len(diagrams))), diagrams, strict=True):
        xs, ys = np.array(diagram.x.values), np.array(diagram.y.values)
        shown = ax.pcolormesh(
            xs, ys, np.array(diagram.error), vmin=0, vmax=0.5, cmap="cividis", shading="nearest"
        )
        _theorem_line(ax, diagram)
        ax.set(
            xlabel=diagram.x.setting,
            ylabel=diagram.y.setting,
            title=f"{diagram.setup}, {diagram.seeds} seeds",
            xscale="log",
            yscale="log",
        )
        ax.set_xticks(xs, [f"{x:g}" for x in xs])
        ax.set_yticks(ys, [f"{y:g}" for y in ys])
        ax.minorticks_off()
    drawn.colorbar(shown, ax=drawn.axes, label="test error")
    return drawn


def _theorem_line(ax: Axes, diagram: Diagram) -> None:
    """n = d log d, the order of Theorem 3.1's sample size (wen2023), its constant taken as 1."""
    ranges = {axis.setting: axis.values for axis in (diagram.x, diagram.y)}
    if set(ranges) != {"n", "d"}:
        return
    d = np.geomspace(min(ranges["d"]), max(ranges["d"]), 50)
    n = d * np.log(d)
    inside = (n >= min(ranges["n"])) & (n <= max(ranges["n"]))
    line = {"d": d[inside], "n": n[inside]}
    ax.plot(line[diagram.x.setting], line[diagram.y.setting], "w--", label="n = d log d")
    ax.legend(loc="lower right", fontsize=8)
