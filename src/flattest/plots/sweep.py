"""Phase diagrams as heat maps."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flattest.sweep import Diagram


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
    drawn.colorbar(shown, ax=drawn.axes, label="test error")
    return drawn


def _theorem_line(ax: Axes, diagram: Diagram) -> None:
    """n = d log d, the order of Theorem 3.1's sample size (wen2023), its constant taken as 1."""
    settings = (diagram.x.setting, diagram.y.setting)
    if set(settings) != {"n", "d"}:
        return
    d = np.geomspace(*(getattr(diagram, "xy"[settings.index("d")]).values[k] for k in (0, -1)), 50)
    line = {"d": d, "n": d * np.log(d)}
    n = getattr(diagram, "xy"[settings.index("n")]).values
    inside = (line["n"] >= min(n)) & (line["n"] <= max(n))
    ax.plot(line[settings[0]][inside], line[settings[1]][inside], "w--", label="n = d log d")
    ax.legend(loc="lower right", fontsize=8)
