"""The SQLite index of a store: one row per run, with the lease of the process that works on it.

The run folders are the truth; the index makes listing fast and says who holds what. It can be
deleted and is then rebuilt from the folders. Every operation opens its own connection, so that an
index may be used from any thread and any process. WAL needs shared memory, so all processes that
use one store must run on one machine (or on a file system that provides it).
"""

import contextlib
import os
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec

from flattest.files import StoreError, unwritable
from flattest.machine import place
from flattest.runs.locks import Locked, PatientConnection, beside, locked

ANOTHER_STORE = "another folder with --store"
SCHEMA = 1
STALE_AFTER = 60.0  # seconds without a heartbeat after which a lease may be taken over
DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

TABLE = """
CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    label TEXT NOT NULL,
    seed INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending',
    sentence TEXT NOT NULL DEFAULT '',
    progress REAL NOT NULL DEFAULT 0,
    step INTEGER NOT NULL DEFAULT 0,
    created REAL NOT NULL,
    started REAL,
    finished REAL,
    seconds REAL NOT NULL DEFAULT 0,
    owner TEXT,
    host TEXT,
    pid INTEGER,
    heartbeat REAL
)
"""
ADDED = {"sharpness": "REAL", "test_error": "REAL", "stamp": "TEXT"}  # since the first index

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]  # what SQLite can hold


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands: in its row of the index, and in its folder's record."""

    status: str = "pending"
    sentence: str = ""
    progress: float = 0.0
    step: Count = 0
    created: float = 0.0
    started: float | None = None
    finished: float | None = None
    seconds: float = 0.0
    sharpness: float | None = None  # the last that was logged
    test_error: float | None = None

    @property
    def standing(self) -> dict[str, Any]:
        """These fields alone, by name."""
        return {name: getattr(self, name) for name in Standing.__struct_fields__}


class Row(Standing, frozen=True, kw_only=True, gc=False):
    """A run, the lease on it, and the stamp of the files that were seen to say the same."""

    key: str
    label: str
    seed: Count
    owner: str | None = None
    host: str | None = None
    pid: int | None = None
    heartbeat: float | None = None
    stamp: str | None = None

    @property
    def held(self) -> bool:
        """Whether a live process works on this run.

        A sign of life from the future is no sign: the clock was set back since, and a live process
        shows the next within seconds.
        """
        if self.owner is None or abs(time.time() - (self.heartbeat or 0)) > STALE_AFTER:
            return False
        return self.host != place() or alive(self.pid or 0)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # somebody else's
    return True


class Index:
    """The rows of `path`, which must exist; `create` makes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writable = os.access(path.parent, os.W_OK) and os.access(path, os.W_OK)
        with contextlib.suppress(FileNotFoundError):
            # SQLite would take an empty file for a database without tables.
            if path.stat().st_size == 0:
                raise damaged(path, "it is empty")
        with self.connection() as db:
            schema = db.execute("PRAGMA user_version").fetchone()[0]
        if schema != SCHEMA:
            age = "a newer" if schema > SCHEMA else "an older"
            raise StoreError(
                f"The store {path.parent} has schema {schema}, from {age} flattest than this one, "
                f"which uses schema {SCHEMA}: use that flattest, or another folder with --store."
            )
        if self.writable:
            self._bring_up_to_date()

    def _bring_up_to_date(self) -> None:
        """Add the columns that an earlier index lacks."""
        with self.connection() as db:
            has = {column["name"] for column in db.execute("PRAGMA table_info(runs)")}
            for name in ADDED.keys() - has:
                # Another process may add it first.
                with contextlib.suppress(sqlite3.OperationalError):
                    db.execute(f"ALTER TABLE runs ADD COLUMN {name} {ADDED[name]}")

    @classmethod
    def opened(cls, path: Path) -> "Index":
        return cls(path) if path.exists() else cls.create(path)

    @classmethod
    def create(cls, path: Path) -> "Index":
        """Make the index at once or not at all; one that another process made first is kept."""
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            with connection(draft, "mode=rwc") as db:
                # What is written in WAL mode is brought into the file when it is closed, and an
                # error then, such as a full disk, is not reported.
                db.execute("PRAGMA journal_mode=MEMORY")
                db.execute(TABLE)
                db.execute(f"PRAGMA user_version={SCHEMA}")
                db.execute("PRAGMA journal_mode=WAL")
            with connection(draft, "mode=ro") as db:
                db.execute("SELECT count(*) FROM runs")
            with locked(path.parent):
                if not path.exists():
                    # SQLite would replay the log that a deleted index left into the new one.
                    for log in beside(path):
                        log.unlink(missing_ok=True)
                    os.link(draft, path)
        except OSError as error:
            raise unwritable(path, error, ANOTHER_STORE) from error
        finally:
            for file in (draft, *beside(draft)):
                file.unlink(missing_ok=True)
        return cls(path)

    def connection(
        self, patience: float | None = None
    ) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """A store that cannot be written is opened immutable: WAL needs to write beside the file.

        An index that was deleted is not made here, since SQLite would make an empty one.
        """
        mode = "mode=rw" if self.writable else "mode=ro&immutable=1"
        return connection(self.path, mode, patience)

    def rows(self) -> list[Row]:
        """Every row. One that says what no row can say is dropped: the run folders are the truth,
        and bring it back."""
        with self.connection() as db:
            db.row_factory = None  # looking up the columns by name takes longer than all the rest
            found = db.execute("SELECT *, rowid FROM runs")
            names = [column for column, *_ in found.description]
            rows, unreadable = [], []
            for one in found:
                row = row_from(zip(names, one, strict=True))
                rows.append(row) if row is not None else unreadable.append(one[-1:])
        if unreadable and self.writable:
            self._drop(unreadable)
        return rows

    def _drop(self, rowids: list[tuple[int]]) -> None:
        """Drop rows that say nothing; the next listing does it where another process is writing."""
        with contextlib.suppress(Locked), self.connection(patience=0) as db:
            db.executemany("DELETE FROM runs WHERE rowid = ?", rowids)

    def row(self, key: str) -> Row | None:
        """The row of a run, if it has one; one that says what no row can say is dropped."""
        with self.connection() as db:
            found = db.execute("SELECT *, rowid FROM runs WHERE key = ?", (key,)).fetchone()
        row = None if found is None else row_from(found)
        if found is not None and row is None and self.writable:
            self._drop([(found["rowid"],)])
        return row

    def add(self, *rows: Row) -> None:
        """Insert the rows whose keys are not there, all at once."""
        names = Row.__struct_fields__
        marks = ", ".join("?" for _ in names)
        with self.connection() as db:
            db.execute("BEGIN IMMEDIATE")
            db.executemany(
                f"INSERT OR IGNORE INTO runs ({', '.join(names)}) VALUES ({marks})",
                [msgspec.structs.astuple(row) for row in rows],
            )
            db.execute("COMMIT")

    def set(self, rows: Sequence[Row]) -> None:
        """Bring the rows of runs that nobody has in hand to what their files say, all at once, for
        the next listing to be faster; not now where another process is writing."""
        names = ("label", "seed", *Standing.__struct_fields__, "stamp")
        places = ", ".join(f"{name} = ?" for name in names)
        values = [(*(getattr(row, name) for name in names), row.key) for row in rows]
        with contextlib.suppress(Locked), self.connection(patience=0) as db:
            db.execute("BEGIN IMMEDIATE")
            db.executemany(f"UPDATE runs SET {places} WHERE key = ? AND owner IS NULL", values)
            db.execute("COMMIT")

    def lease(self, key: str, owner: str) -> bool:
        """Take the run for `owner`; False if a live process holds it.

        The transaction is immediate: of two processes that ask, one gets it.
        """
        with self.connection() as db:
            db.execute("BEGIN IMMEDIATE")
            row = fetch(db, key)
            if row is None or row.held:
                return False
            mine = {"owner": owner, "host": place(), "pid": os.getpid()}
            update(db, key, row.owner, **mine, heartbeat=time.time())
            db.execute("COMMIT")
        return True

    def change(self, key: str, holder: str, /, **fields: Any) -> bool:
        """Set `fields` of a run that `holder` owns; False if another has taken it over."""
        with self.connection() as db:
            return update(db, key, holder, **fields)


@contextlib.contextmanager
def connection(
    path: Path, mode: str, patience: float | None = None
) -> Iterator[sqlite3.Connection]:
    """A connection in autocommit mode, closed at the end, whose errors are StoreErrors; it waits
    for other processes' locks `patience` seconds, or as long as anything does."""
    uri = f"{path.absolute().as_uri()}?{mode}"
    try:
        db = sqlite3.connect(
            uri, uri=True, timeout=0, isolation_level=None, factory=PatientConnection
        )
        db.path, db.patience = path, patience
        try:
            db.row_factory = sqlite3.Row
            db.text_factory = partial(str, encoding="utf-8", errors="replace")
            yield db
        finally:
            db.close()
    except sqlite3.Error as error:
        if mode != "mode=rwc" and not path.exists():
            raise StoreError(
                f"The store's index {path} was deleted while in use; "
                "`flattest status` rebuilds it from the runs."
            ) from error
        raise unusable(path, error) from error


def unusable(path: Path, error: sqlite3.Error) -> StoreError:
    """What to do about an error of SQLite; the low byte of its code is the kind."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in DAMAGED:
        return damaged(path, str(error))
    return StoreError(
        f"The store's index {path} cannot be used: {error}; check that the folder can be "
        "written and has space, or choose another with --store."
    )


def damaged(path: Path, reason: str) -> StoreError:
    files = " and ".join(log.name for log in beside(path))
    return StoreError(
        f"The store's index {path} is damaged ({reason}); delete it, with {files} beside it, "
        "and the next command rebuilds it from the runs."
    )


def fetch(db: sqlite3.Connection, key: str) -> Row | None:
    found = db.execute("SELECT * FROM runs WHERE key = ?", (key,)).fetchone()
    return None if found is None else row_from(found)


def row_from(found: sqlite3.Row | Iterable[tuple[str, Any]]) -> Row | None:
    """What SQLite holds as a row, where it can be one: it keeps text where a number belongs."""
    try:
        return msgspec.convert(dict(found), Row)
    except msgspec.ValidationError:
        return None


def update(db: sqlite3.Connection, key: str, holder: str | None, /, **fields: Any) -> bool:
    names = ", ".join(f"{name} = ?" for name in fields)
    done = db.execute(
        f"UPDATE runs SET {names} WHERE key = ? AND owner IS ?", (*fields.values(), key, holder)
    )
    return done.rowcount == 1
