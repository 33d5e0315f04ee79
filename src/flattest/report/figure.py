"""Figures on disk."""

from pathlib import Path

from matplotlib.figure import Figure

from flattest.errors import FlattestError

FORMATS = ("png", "svg")


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
