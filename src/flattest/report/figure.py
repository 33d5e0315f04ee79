"""Figures on disk."""

from pathlib import Path

from matplotlib.figure import Figure

from flattest.errors import FlattestError

# What is left out so that the same figure gives the same bytes: the time of day.
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
        for path, left_out in paths.items():
            drawn.savefig(path, dpi=150, bbox_inches="tight", metadata=left_out)
    except OSError as error:
        raise FlattestError(f"Cannot write figures to {folder}: {error.strerror}.") from error
    return list(paths)
