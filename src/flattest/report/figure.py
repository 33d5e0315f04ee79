"""Figures on disk."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flattest.errors import FlattestError
from flattest.lab.summary import Spread, Summary

# What is left out so that the same figure gives the same bytes: the time of day. The names of
# parts of an SVG are drawn at random, unless they are salted.
FORMATS: dict[str, dict[str, None]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def save(drawn: Figure, folder: Path, name: str) -> list[Path]:
    """Writes the figure as PNG, SVG and PDF; the same figure gives the same bytes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = {folder / f"{name}.{suffix}": left_out for suffix, left_out in FORMATS.items()}
        with matplotlib.rc_context({"svg.hashsalt": "flattest"}):
            for path, left_out in paths.items():
                drawn.savefig(path, dpi=150, bbox_inches="tight", metadata=left_out)
    except OSError as error:
        raise FlattestError(f"Cannot write figures to {folder}: {error.strerror}.") from error
    return list(paths)


def save_all(
    pictures: Mapping[str, Callable[[Sequence[Summary]], Figure]],
    summaries: Sequence[Summary],
    folder: Path,
) -> list[Path]:
    """Draws each picture from the summaries and writes it under its name."""
    return [p for name, draw in pictures.items() for p in save(draw(summaries), folder, name)]


def ranges(ax: Axes, rows: Mapping[float, Spread], colour: str, label: str = "") -> None:
    """A dot at the median over seeds and a bar over their range, at the given heights."""
    found = list(rows.values())
    medians = [spread.median for spread in found]
    below = [spread.median - spread.low for spread in found]
    above = [spread.high - spread.median for spread in found]
    ax.errorbar(
        *(medians, list(rows)),
        xerr=[below, above],
        fmt="o",
        ms=4,
        lw=1.2,
        capsize=2,
        color=colour,
        label=label or None,
    )


def named_rows(ax: Axes, names: Mapping[float, str]) -> None:
    """Names in the place of heights, the first on top."""
    ax.set_yticks(list(names), list(names.values()))
    ax.set_ylim(max(names) + 0.6, min(names) - 0.6)
    ax.grid(axis="x", lw=0.4)
