"""Writes the examples: two Python files as they are, and the arrays that one of them makes."""

from pathlib import Path

from flattest.errors import FlattestError
from flattest.files import write_bytes, write_series, write_tensors

HERE = Path(__file__).parent
SOURCES = ("net.py", "lab.py")
TENSORS, DATA = "net.safetensors", "data.npz"


def write_examples(folder: Path) -> list[Path]:
    """The files, in `folder`; none of them is written where one is there already."""
    from flattest.examples import net

    paths = [folder / name for name in (*SOURCES, TENSORS, DATA)]
    for path in paths:
        if path.exists():
            raise FlattestError(f"{path} is there already; choose another folder.")
    for name in SOURCES:
        write_bytes(folder / name, (HERE / name).read_bytes())
    write_tensors(folder / TENSORS, net.parameters())
    write_series(folder / DATA, net.data())
    return paths
