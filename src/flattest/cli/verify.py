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
    listing,
    mark,
    name_column,
    output,
)
from flattest.errors import FlattestError
from flattest.files import write_bytes
from flattest.ledger.claim import Claim, ledger
from flattest.ledger.kept import save
from flattest.ledger.page import cells, lines, renewed
from flattest.ledger.verify import LedgerRow, verify
from flattest.runs.store import Store

# What --list says of a claim; the table has the first five.
FIELDS = (
    "id",
    "evidence",
    "cost",
    "expected",
    "statement",
    "source",
    "experiments",
    "refuted_by",
    "lost",
)


def command(
    pattern: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="PATTERN", help="Part of a name, or a pattern such as '*lemma-a*'."),
    ] = "*",
    only_list: Annotated[
        bool, tyro.conf.arg(name="list", help="Name the claims, check nothing.")
    ] = False,
    fast: Annotated[bool, tyro.conf.arg(help="Leave out the entries that take minutes.")] = False,
    write: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FILE",
            help="Also write the ledger as a Markdown page;"
            " what is not checked keeps its row there.",
        ),
    ] = None,
    workers: Workers = None,
    folder: StoreFolder = DEFAULT_STORE,
    as_json: Json = False,
) -> int:
    entries = ledger(pattern, "fast" if fast else "full")
    written = page_before(write, entries) if write else ""
    if only_list:
        described = [{name: getattr(entry, name) for name in FIELDS} for entry in entries]
        output(as_json, described, list_table(entries))
        return 0
    store = Store.create(folder)
    found = {row.id: row for row in watched(verify(entries, store, workers), len(entries))}
    rows = [found[entry.id] for entry in entries]
    wrong = [f"{r.id}: {r.note} Expected: {r.expected}." for r in rows if not r.as_expected]
    output(as_json, rows, table(rows), *map(escape, wrong))
    save(rows, store.root)
    if write:
        write_bytes(write, renewed(written, rows, [entry.id for entry in ledger()]).encode())
    return 1 if wrong else 0


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
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task("verifying", total=total)
        for row in rows:
            progress.update(task, advance=1, description=escape(row.id))
            yield row


def list_table(entries: list[Claim]) -> Table:
    names = name_column("claim", (entry.id for entry in entries))
    rows = ((escape(getattr(entry, name)) for name in FIELDS[:5]) for entry in entries)
    return listing((names, *FIELDS[1:5]), rows)


def table(rows: list[LedgerRow]) -> Table:
    names = name_column("claim", (row.id for row in rows))
    shown = (
        (
            mark(row.as_expected),
            row.id,
            escape(row.finding) if row.as_expected else f"[red]{escape(row.finding)}[/]",
            *map(escape, cells(row.verdict)),
            row.place,
        )
        for row in rows
    )
    caption = f"{len(rows)} claims, {sum(not row.as_expected for row in rows)} not as expected"
    return listing(
        ("", names, "status", "value", "bound", "tolerance", "read from"), shown, caption
    )
