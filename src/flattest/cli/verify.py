"""Check the papers' claims, one by one, and say which hold.

Every numbered statement of the source papers is a check that can fail: the exit code is 0 when each
entry has the status the ledger expects (a misprint is expected to fail as printed), else 1. What a
figure shows is read from the store's runs, else from the committed results; nothing is trained. The
rows are kept in the store, where `flattest report` and `flattest serve` find them.

Examples:

    flattest verify                               the whole ledger
    flattest verify --fast                        without the entries that take minutes
    flattest verify theorem-4.1                   entries whose name contains this
    flattest verify 'wen2023/lemma-a.1*' --json   for a program to read
    flattest verify --list                        what there is, unchecked
    flattest verify --write docs/claims.md        the whole ledger as a page
    flattest verify theorem-5 --write docs/claims.md   these rows of it anew
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from flattest.cli._options import (
    DEFAULT_STORE,
    Json,
    StoreFolder,
    Workers,
    console,
    listing,
    mark,
    name_column,
    print_json,
)
from flattest.errors import FlattestError
from flattest.files import write_bytes
from flattest.ledger.claim import Claim, ledger
from flattest.ledger.kept import save
from flattest.ledger.page import cells, lines, renewed
from flattest.ledger.verify import LedgerRow, verify
from flattest.runs.store import Store

Pattern = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="PATTERN", help="Part of a name, or a pattern such as '*lemma-a*'."),
]
Listing = Annotated[bool, tyro.conf.arg(name="list", help="Name the claims, check nothing.")]
Fast = Annotated[bool, tyro.conf.arg(help="Leave out the entries that take minutes.")]
Write = Annotated[
    Path | None,
    tyro.conf.arg(
        metavar="FILE",
        help="Also write the ledger as a Markdown page; what is not checked keeps its row there.",
    ),
]


def command(
    pattern: Pattern = "*",
    listing: Listing = False,
    fast: Fast = False,
    write: Write = None,
    workers: Workers = None,
    folder: StoreFolder = DEFAULT_STORE,
    as_json: Json = False,
) -> int:
    entries = ledger(pattern, "fast" if fast else "full")
    written = page_before(write, entries) if write else ""
    if listing:
        return show_list(entries, as_json)
    store = Store.create(folder)
    found = {row.id: row for row in watched(verify(entries, store, workers), len(entries))}
    rows = [found[entry.id] for entry in entries]
    if as_json:
        print_json(rows)
    else:
        wrong = [f"{r.id}: {r.note} Expected: {r.expected}." for r in rows if not r.as_expected]
        console().print(table(rows), *map(escape, wrong), sep="\n")
    save(rows, store.root)
    if write:
        ids = [entry.id for entry in ledger()]
        write_bytes(write, renewed(written, rows, ids).encode())
    return 0 if all(row.as_expected for row in rows) else 1


def page_before(file: Path, entries: list[Claim]) -> str:
    """The page as it is, which must have a row for every claim that is not checked now."""
    written = file.read_text(encoding="utf-8") if file.is_file() else ""
    known = lines(written) | {entry.id: "" for entry in entries}
    absent = [entry.id for entry in ledger() if entry.id not in known]
    if absent:
        raise FlattestError(
            f"--write needs the whole ledger: {file} has no row of {absent[0]} to keep; "
            "give no pattern and no --fast."
        )
    return written


def watched(rows: Iterable[LedgerRow], total: int) -> Iterable[LedgerRow]:
    """The rows as they come, with a bar on the error stream."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("verifying", total=total)
        for row in rows:
            progress.update(task, advance=1, description=escape(row.id))
            yield row


def show_list(entries: list[Claim], as_json: bool) -> int:
    fields = ("id", "evidence", "cost", "expected", "statement", "source", "experiments")
    if as_json:
        print_json([{name: getattr(entry, name) for name in fields} for entry in entries])
        return 0
    names = name_column("claim", (entry.id for entry in entries))
    grid = listing(names, *fields[1:5])
    for entry in entries:
        grid.add_row(*(escape(getattr(entry, name)) for name in fields[:5]))
    console().print(grid)
    return 0


def table(rows: list[LedgerRow]) -> Table:
    names = name_column("claim", (row.id for row in rows))
    grid = listing("", names, "status", "value", "bound", "tolerance")
    for row in rows:
        status = row.status if row.as_expected else f"[red]{row.status}[/]"
        grid.add_row(mark(row.as_expected), row.id, status, *map(escape, cells(row.verdict)))
    wrong = sum(not row.as_expected for row in rows)
    grid.caption = f"{len(rows)} claims, {wrong} not as expected"
    return grid
