"""What the page shows of runs, kept beside the store's index: a second page reads only what is new.

It can be deleted at any time. Every line carries a digest, and one that is not what was written is
made again from the run's folder, which is the truth. Nobody waits for it: while another process
has it locked, the page is made without it.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from flattest.errors import FlattestError
from flattest.files import digest
from flattest.report.views import RunView
from flattest.runs.index import connection
from flattest.runs.locks import Locked

NAME = "page.sqlite"
TABLE = "CREATE TABLE IF NOT EXISTS views (key TEXT PRIMARY KEY, stamp TEXT, view BLOB, seal TEXT)"


UNUSABLE = (FlattestError, TypeError, ValueError, msgspec.MsgspecError)


def kept_views(root: Path, stamps: Mapping[str, str]) -> dict[str, RunView]:
    """The views of runs whose stamps are those they were made with."""
    found: dict[str, RunView] = {}
    try:
        with _opened(root) as db:
            for key, stamp, view, seal in db.execute("SELECT key, stamp, view, seal FROM views"):
                if stamps.get(key) == stamp and _seal(key, stamp, view) == seal:
                    found[key] = msgspec.json.decode(view, type=RunView)
    except Locked:
        return {}
    except UNUSABLE:
        _drop(root)
    return found


def keep_views(root: Path, stamps: Mapping[str, str], views: Mapping[str, RunView]) -> None:
    """Keep these beside the others; those of runs that are gone are dropped. Where nothing can be
    written the next page is made as slowly as this one."""
    rows = [(key, stamps[key], msgspec.json.encode(view)) for key, view in views.items()]
    sealed = [(*row, _seal(*row)) for row in rows]
    try:
        with _opened(root) as db:
            db.execute("BEGIN IMMEDIATE")
            gone = {key for (key,) in db.execute("SELECT key FROM views")} - stamps.keys()
            db.executemany("DELETE FROM views WHERE key = ?", [(key,) for key in gone])
            db.executemany("INSERT OR REPLACE INTO views VALUES (?, ?, ?, ?)", sealed)
            db.execute("COMMIT")
    except Locked:
        return
    except UNUSABLE:
        _drop(root)


def _seal(key: str, stamp: str, view: bytes) -> str:
    return digest(f"{key} {stamp} ".encode() + bytes(view))


@contextlib.contextmanager
def _opened(root: Path) -> Iterator[sqlite3.Connection]:
    with connection(root / NAME, "mode=rwc", patience=0) as db:
        db.execute(TABLE)
        yield db


def _drop(root: Path) -> None:
    """What cannot be used is made again."""
    with contextlib.suppress(OSError):
        os.unlink(root / NAME)
