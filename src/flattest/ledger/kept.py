"""Rows of the ledger kept beside the runs of a store, `claims.json`, for the page."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from flattest.errors import FlattestError
from flattest.evidence import Grade
from flattest.files import StoreError, read_json, write_json
from flattest.ledger.page import cells
from flattest.ledger.verify import LedgerRow

NAME = "claims.json"


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
