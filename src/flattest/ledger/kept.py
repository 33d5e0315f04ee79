"""Outcomes kept beside the runs of a store, `claims.json`, for the page that shows both."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from flattest.errors import FlattestError
from flattest.files import StoreError, read_json, write_json
from flattest.ledger.claim import Outcome
from flattest.ledger.page import cells

NAME = "claims.json"


class Checked(msgspec.Struct, frozen=True):
    """What was found of a claim, numbers as text."""

    id: str
    status: str
    as_expected: bool
    value: str
    bound: str
    tolerance: str
    note: str


def save(outcomes: Sequence[Outcome], folder: Path) -> None:
    """Keep the outcomes in `folder`, beside those of claims that were not checked this time.

    Where the file is damaged there is nothing to keep them beside, and it begins anew.
    """
    try:
        before = saved(folder)
    except StoreError:
        raise
    except FlattestError:
        before = {}
    kept = before | {outcome.id: _checked(outcome) for outcome in outcomes}
    write_json(folder / NAME, sorted(kept.values(), key=lambda entry: entry.id))


def saved(folder: Path) -> dict[str, Checked]:
    """The outcomes kept in `folder` by claim; none where there is no file."""
    path = folder / NAME
    entries = read_json(path, list[Checked]) if path.exists() else []
    return {entry.id: entry for entry in entries}


def _checked(outcome: Outcome) -> Checked:
    told = (outcome.id, outcome.status, outcome.as_expected)
    return Checked(*told, *cells(outcome.measured), outcome.note)
