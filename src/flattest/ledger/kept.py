"""Rows of the ledger kept for the page: beside the runs of a store, or in a document."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from flattest.errors import FlattestError
from flattest.evidence import Grade
from flattest.files import StoreError, read_json, write_json
from flattest.ledger.page import cells, columns, lines
from flattest.ledger.verify import LedgerRow

NAME = "claims.json"
# `LedgerRow.finding`, bold where it is not as expected.
FINDING = re.compile(r"(\*\*)?(?P<status>.+?) · \S+ (?P<grade>\w+)( \((?P<basis>.*)\))?(\*\*)?")


class Checked(msgspec.Struct, frozen=True):
    """What was found of a claim, numbers as text; rows of before there were grades have none."""

    id: str
    status: str
    as_expected: bool
    value: str
    bound: str
    tolerance: str
    note: str
    grade: Grade | None = None
    basis: str = ""


def save(rows: Sequence[LedgerRow], folder: Path) -> None:
    """Keep the rows in `folder`, beside those of claims that were not checked this time.

    Where the file is damaged there is nothing to keep them beside, and it begins anew.
    """
    try:
        before = saved(folder)
    except StoreError:
        raise
    except FlattestError:
        before = {}
    new = {
        r.id: Checked(r.id, r.status, r.as_expected, *cells(r.verdict), r.note, r.grade, r.basis)
        for r in rows
    }
    write_json(folder / NAME, sorted((before | new).values(), key=lambda kept: kept.id))


def saved(folder: Path) -> dict[str, Checked]:
    """The rows kept in `folder` by claim; none where there is no file."""
    path = folder / NAME
    kept = read_json(path, list[Checked]) if path.exists() else []
    return {row.id: row for row in kept}


def written(text: str) -> dict[str, Checked]:
    """The rows of a document that `flattest verify --write` wrote, by claim."""
    return {id: _read(id, columns(line)) for id, line in lines(text).items()}


def _read(id: str, cells: dict[str, str]) -> Checked:
    found = FINDING.fullmatch(cells["status"])
    if found is None:
        raise FlattestError(f"The row of {id} has no status and grade: {cells['status']!r}.")
    return Checked(
        id,
        found["status"],
        not found[1],
        cells["value"],
        cells["bound"],
        cells["tolerance"],
        cells["remarks"],
        msgspec.convert(found["grade"], Grade),
        found["basis"] or "",
    )
