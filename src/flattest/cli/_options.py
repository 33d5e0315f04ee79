"""Arguments that several commands take, and how they print."""

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import tyro
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from flattest.errors import FlattestError, visible
from flattest.evidence import Grade, graded
from flattest.experiments.experiment import VariantName
from flattest.files import as_text

DEFAULT_STORE = Path(os.environ.get("FLATTEST_STORE", "out/store"))

Patterns = Annotated[
    tuple[str, ...],
    tyro.conf.Positional,
    tyro.conf.arg(
        metavar="PATTERN",
        help="Names or patterns: fig4b, 'fig4?', 'vardhan2026/*'; without a paper, wen2023's.",
    ),
]
Quick = Annotated[bool, tyro.conf.arg(help="The quick variants (this is the default).")]
Full = Annotated[bool, tyro.conf.arg(help="The paper's own scale.")]


def parsed_seeds(text: str | None) -> int | range | None:
    """How many, "5", or which, "3:8" for 3 … 7; None where nothing was said."""
    if text is None:
        return None
    if text.removeprefix("-").isdecimal():
        return int(text)  # how many is enough is for the command to say
    first, colon, end = text.partition(":")
    if not (colon and first.isdecimal() and end.isdecimal()):
        raise FlattestError(f"Say how many seeds, 5, or which, 3:8 for 3 … 7; not {text!r}.")
    if int(first) >= int(end):
        raise FlattestError(f"There are no seeds in {text}: the first must be below the end.")
    return range(int(first), int(end))


# Read by `parsed_seeds` in the command, so that what is wrong is a sentence of ours.
Seeds = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="N|FIRST:END",
        help="Seeds 0 … N − 1, or FIRST … END − 1, not the experiment's own number.",
    ),
]
StoreFolder = Annotated[
    Path,
    tyro.conf.arg(
        name="store", metavar="DIR", help="Where runs are kept; FLATTEST_STORE sets the default."
    ),
]
Workers = Annotated[
    int | None,
    tyro.conf.arg(metavar="N", help="Processes; by default one per core, 1 for this one alone."),
]
Scheduler = Annotated[
    str | None,
    tyro.conf.arg(metavar="ADDRESS", help="A Dask scheduler to use instead of this machine."),
]
Page = Annotated[Path, tyro.conf.arg(metavar="FILE.html", help="Where the page goes.")]
# A network of one's own, as `measure` and `compare` take it.
Build = Annotated[
    str | None,
    tyro.conf.arg(
        name="model", metavar="FILE.py:FUNCTION", help="A function that builds the network."
    ),
]
SampleFile = Annotated[
    Path | None, tyro.conf.arg(metavar="FILE.npz", help="Arrays x and y, one sample per row.")
]
LossName = Annotated[
    str | None,
    tyro.conf.arg(metavar="NAME", help="mse (the default), half_mse, logistic or cross_entropy."),
]
Json = Annotated[bool, tyro.conf.arg(name="json", help="Print JSON, for a program to read.")]


def variant_name(quick: bool, full: bool) -> VariantName:
    if quick and full:
        raise FlattestError("--quick and --full exclude each other.")
    return "full" if full else "quick"


def output(as_json: bool, value: Any, *shown: RenderableType, then: str = "") -> None:
    """Print a command's answer: the value for a program, else what is shown to people, who are
    told what they may do `then`."""
    if as_json:
        print_json(value)
        return
    console().print(*shown, sep="\n")
    if then:
        console().print(f"[dim]Next: {escape(then)}[/]")


def look_at(folder: Path) -> str:
    """How what was run is looked at."""
    store = "" if folder == DEFAULT_STORE else f" --store {shlex.quote(str(folder))}"
    return f"`flattest report{store}` shows it on a page, `flattest serve{store}` while it runs."


def print_json(value: Any) -> None:
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=encode), indent=1)
    sys.stdout.write(text.decode() + "\n")


def encode(value: Any) -> Any:
    """Arrays as lists; paths as text."""
    return value.tolist() if hasattr(value, "tolist") else as_text(str(value))


class Screen(Console):
    """A console that lets the command line's `main` end it when its reader has gone.

    Names and sentences may come from anywhere: no control character in them reaches a terminal.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """For people: to a terminal in colour, to a file or a pipe without and uncut."""
    screen = Screen(highlight=False)
    return screen if screen.is_terminal else Screen(highlight=False, width=200, soft_wrap=True)


def grid(columns: Sequence[Column | str], rows: Iterable[Iterable[str]], **style: Any) -> Table:
    """A table without lines."""
    table = Table(*columns, box=None, pad_edge=False, **style)
    for row in rows:
        table.add_row(*row)
    return table


def listing(
    columns: Sequence[Column | str], rows: Iterable[Iterable[str]], caption: str = ""
) -> Table:
    """A grid where what is too wide for the terminal is folded, never cut."""
    table = grid(columns, rows, caption=caption)
    for column in table.columns:
        column.overflow = "fold"
    return table


def name_column(header: str, names: Iterable[str]) -> Column:
    """What one has to type: other columns give way first."""
    return Column(header, width=max(map(len, (header, *names))))


def graded_mark(grade: Grade) -> str:
    """The glyph of a grade, coloured, with its word."""
    colour = {"proven": "green", "supported": "green", "refuted": "red", "open": "yellow"}[grade]
    return f"[{colour}]{graded(grade)}[/]"


def mark(met: bool | None) -> str:
    """A sign for yes, no and undecided."""
    return {True: "[green]✓[/]", False: "[red]✗[/]", None: "[yellow]?[/]"}[met]


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
