"""The tables of docs/reliability.md that scripts write: a row each, in the place of those of the
same name, with the commit it was made from."""

from collections.abc import Iterable
from pathlib import Path

import flattest as ft
from flattest.runs.provenance import commit

DOCUMENT = Path(__file__).parents[1] / "docs" / "reliability.md"
END = "<!-- end -->"


def source_of_this() -> str:
    """The commit, marked where the package was edited since."""
    found = commit(Path(ft.__file__))
    return found[:12] + ("+changes" if found.endswith("+changes") else "") or "unknown"


def write(rows: dict[str, str], begin: str, head: str, order: Iterable[str]) -> None:
    """The rows, by name, into the table under the mark `begin`."""
    before, mark, rest = DOCUMENT.read_text(encoding="utf-8").partition(begin)
    table, end, after = rest.partition(END)
    if not (mark and end):
        raise ValueError(f"{DOCUMENT} has no table between {begin} and {END}.")
    kept = {line.split("|")[1].strip(): line for line in table.splitlines() if line[:2] == "| "}
    lines = "\n".join((kept | rows)[name] for name in order if name in kept | rows)
    DOCUMENT.write_text(f"{before}{begin}\n{head}{lines}\n{END}{after}", encoding="utf-8")
