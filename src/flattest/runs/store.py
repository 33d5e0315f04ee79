"""Runs on disk: an SQLite index, `index.sqlite`, and one folder per run, `runs/KEY`.

Runs of an earlier version of the engine stand where its numbers are those of this one: they are
found, and worked on further, under the keys they have.
"""

import os
import time
import uuid
from pathlib import Path
from typing import Any, Self

import msgspec

from flattest.errors import FlattestError
from flattest.files import StoreError, remove_stale_drafts, unreadable, unwritable, write_sealed
from flattest.runs.folder import (
    DONE,
    Record,
    Spec,
    StoredRun,
    as_listed,
    as_read,
    check,
    is_as_seen,
    is_asked,
    read_results,
    read_spec,
    row_of,
    stored_run,
    unknown,
)
from flattest.runs.index import ANOTHER_STORE, SCHEMA, Index, Row
from flattest.runs.lease import Lease
from flattest.training.keys import run_keys


class Store:
    """The runs under `root`. Any number of processes may use one store at once."""

    def __init__(self, root: Path | str, index: Index) -> None:
        self.root = Path(root)
        self._runs = self.root / "runs"
        self.index = index

    @classmethod
    def create(cls, root: Path | str) -> Self:
        """Open the store at `root`, making it first where there is none."""
        root = Path(root)
        try:
            (root / "runs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(root, error, ANOTHER_STORE) from error
        remove_stale_drafts(root, ".*.tmp*")
        return cls(root, Index.opened(root / "index.sqlite"))

    @classmethod
    def open(cls, root: Path | str) -> Self:
        """Open the store at `root` to read; it must exist, and may be on a read-only disk.

        A store that has lost its index has runs, and gets a new one.
        """
        path = Path(root) / "index.sqlite"
        if not path.exists() and not any(path.parent.glob("runs/*/spec.json")):
            raise StoreError(
                f"There is no store at {root}: give its folder with --store, "
                "or make one with `flattest run`."
            )
        return cls(root, Index.opened(path))

    def folder(self, key: str) -> Path:
        return self._runs / key

    def strangers(self, known: set[str]) -> list[Path]:
        """The run folders that have none of the known keys."""
        try:
            found = sorted(os.listdir(self._runs))
        except OSError as error:
            raise unreadable(self._runs, error) from error
        folders = (self.folder(name) for name in found if name not in known)
        return [folder for folder in folders if os.path.lexists(folder / "spec.json")]

    def _rows(self) -> list[Row]:
        """The index, and a row for each folder that is not in it, by label and seed."""
        rows = self.index.rows()
        strangers = self.strangers({row.key for row in rows})
        found = dict(zip(strangers, self._adopted(strangers), strict=True))
        known = [*rows, *(row for row in found.values() if row is not None)]
        known.sort(key=lambda row: (row.label, row.seed, row.created))
        return known + [unknown(folder) for folder, row in found.items() if row is None]

    def has(self, key: str) -> bool:
        """Whether this run was asked for."""
        return self._row(key) is not None

    def _row(self, key: str) -> Row | None:
        """The row of the index, or of a folder that is not in it."""
        found = self.index.row(key)
        if found is None and os.path.lexists(self.folder(key) / "spec.json"):
            (found,) = self._adopted([self.folder(key)])
        return found

    def _adopted(self, strangers: list[Path]) -> list[Row | None]:
        """The rows of run folders that are not in the index, which takes them in: they were copied
        here, or left by an index that was deleted. None for one that does not say what it is."""
        found = [row_of(folder) for folder in strangers]
        known = [row for row in found if row is not None]
        if known and self.index.writable:
            self.index.add(*known)
        return found

    def runs(self) -> list[StoredRun]:
        """Every run, broken ones marked, by label and seed."""
        found = []
        for row in self._rows():
            folder = self.folder(row.key)
            found.append((folder, row, row if is_as_seen(folder, row) else as_read(folder, row)))
        news = [now for _, row, now in found if now is not row and now.stamp is not None]
        if news and self.index.writable:
            self.index.set(news)
        return [as_listed(folder, now) for folder, _, now in found]

    def check(self) -> list[StoredRun]:
        """Every run after a look into all its files; what the dead left half written is removed."""
        for folder in (self.root / "runs").iterdir():
            remove_stale_drafts(folder)
        return [run.verified() for run in self.runs()]

    def run(self, key: str) -> StoredRun | None:
        row = self._row(key)
        return None if row is None else stored_run(self.folder(key), row)

    def run_of(self, task: Any, seed: int) -> StoredRun | None:
        """The run of a task, of this engine or of an earlier one with the same numbers."""
        found = (self.run(key) for key in run_keys(task, seed))
        return next((run for run in found if run is not None), None)

    def find(self, prefix: str) -> StoredRun:
        """The one run whose key begins with `prefix`."""
        found = [row for row in self._rows() if row.key.startswith(prefix)]
        if len(found) != 1:
            few = ", ".join(row.key for row in found[:5])
            raise FlattestError(
                f"{len(found)} runs have a key that begins with {prefix!r}{': ' if few else ''}"
                f"{few}; `flattest status` lists them all."
            )
        return stored_run(self.folder(found[0].key), found[0])

    def add(self, task: Any, seed: int, label: str) -> str:
        """Ask for a run; returns its key. Asking twice is asking once."""
        keys = run_keys(task, seed)
        key = next(filter(self.has, keys), next(iter(keys)))
        folder = self.folder(key)
        if seed >= 2**63:
            raise FlattestError(f"The store keeps seeds below 2^63, not {seed}.")
        if not self.has(key) or not is_asked(folder):
            raw = msgspec.Raw(msgspec.json.encode(task))
            write_sealed(folder / "spec.json", Spec(SCHEMA, key, label, seed, keys[key], raw))
            self.index.add(Row(key=key, label=label, seed=seed, created=time.time()))
        return key

    def lease(self, key: str, heartbeat: float = 5.0) -> Lease | None:
        """The right to work on a run, for this process alone; None if another has it or it is done.

        A run that another began and left, that failed, or whose results are broken is given.
        """
        read_spec(self.folder(key))
        owner = uuid.uuid4().hex
        if not self.has(key) or not self.index.lease(key, owner):
            return None
        lease = Lease(self.index, self.folder(key), owner, heartbeat)
        if lease.record.status not in DONE:
            return lease
        try:
            check(lease.folder, lease.record.status)
            read_results(lease.folder)
        except StoreError:
            # We may not read results that may be sound; computing them again would not help.
            lease.release()
            raise
        except FlattestError:
            lease.record = Record()  # what it says of the earlier result no longer counts
            return lease
        # Done, though perhaps killed before it could tell the index.
        lease.release()
        return None
