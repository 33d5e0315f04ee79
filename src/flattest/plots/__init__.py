"""Store → figure; never trains.

A module of this package draws the figures of one paper: functions of an experiment's results,
one a seed, that return a matplotlib figure.

    @figure("mulayoff2021/sweep", "functions")
    def functions(results: Sequence[Result]) -> Figure: ...
"""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from flattest.errors import FlattestError
from flattest.experiments.expectations import Result

Draw = Callable[[Sequence[Result]], Figure]
FORMATS = ("png", "svg")

_FIGURES: dict[str, dict[str, Draw]] = {}


def figure(experiment: str, name: str) -> Callable[[Draw], Draw]:
    """Registers the decorated function as a figure of that experiment."""

    def register(draw: Draw) -> Draw:
        _FIGURES.setdefault(experiment, {})[name] = draw
        return draw

    return register


def figures(experiment: str) -> dict[str, Draw]:
    """The figures of an experiment by name; none where there is nothing to draw."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return _FIGURES.get(experiment, {})


def save(drawn: Figure, folder: Path, name: str) -> list[Path]:
    """Writes the figure as PNG and SVG; the same figure gives the same bytes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{name}.{suffix}" for suffix in FORMATS]
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else None
            drawn.savefig(path, dpi=150, bbox_inches="tight", metadata=metadata)
    except OSError as error:
        raise FlattestError(f"Cannot write figures to {folder}: {error.strerror}.") from error
    return paths
