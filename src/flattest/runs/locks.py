"""Locks that processes hold on a store while they write, and the wait for them.

A write takes milliseconds. Who holds a lock for longer was stopped in the middle of one (Ctrl-Z, a
debugger) or has a disk that does not answer: after a moment it is said who that is, and no wait is
without end.
"""

import contextlib
import fcntl
import os
import sqlite3
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from flattest.errors import visible
from flattest.files import StoreError

SILENT = 2.0  # seconds of waiting without a word
PATIENCE = 30.0  # seconds of waiting in all
PAUSE = 0.02  # seconds between two attempts
HELD = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL})

T = TypeVar("T")


class Locked(StoreError):
    """Another process has had a lock for longer than this one waits."""


def patiently(path: Path, attempt: Callable[[], T], patience: float | None = None) -> T:
    """What `attempt` returns, once no other process has the lock on `path` that it needs."""
    patience = PATIENCE if patience is None else patience
    began, said = time.monotonic(), False
    while True:
        try:
            return attempt()
        except (BlockingIOError, sqlite3.OperationalError) as error:
            if not is_held(error):
                raise
            waited = time.monotonic() - began
            if waited >= patience:
                raise Locked(f"{path} is locked by {holder(path)}.") from error
        if waited >= SILENT and not said:
            said = True
            left = f"for at most {patience - waited:.0f} s more"
            print(f"Waiting {left}: {path} is locked by {holder(path)}.", file=sys.stderr)
        time.sleep(PAUSE)


def is_held(error: BlockingIOError | sqlite3.OperationalError) -> bool:
    """Whether another's lock is in the way; the low byte of SQLite's code is the kind."""
    return isinstance(error, BlockingIOError) or error.sqlite_errorcode & 0xFF in HELD


class PatientConnection(sqlite3.Connection):
    """A connection to the database `path` whose statements wait as `patiently` does."""

    path: Path
    patience: float | None

    def execute(self, *statement: Any) -> sqlite3.Cursor:
        ask = super().execute
        return patiently(self.path, lambda: ask(*statement), self.patience)

    def executemany(self, *statement: Any) -> sqlite3.Cursor:
        ask = super().executemany
        return patiently(self.path, lambda: ask(*statement), self.patience)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process at a time is in this block with this folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        patiently(folder, lambda: fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


def beside(path: Path) -> list[Path]:
    """The files that SQLite keeps beside a database in WAL mode."""
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm")]


def holder(path: Path) -> str:
    """Who has the lock, in words, and what helps."""
    pid = next(iter(holders(path)), None)
    if pid is None:
        return "another process: wait until it is done, or end it"
    who = f"process {pid} (`{command_of(pid)}`)"
    if is_stopped(pid):
        return f"{who}, which is stopped: `kill -CONT {pid}` lets it go on, `kill -9 {pid}` ends it"
    return f"{who}: wait until it is done, or end it"


def holders(path: Path) -> list[int]:
    """The other processes that hold locks on a file, or on what SQLite keeps beside it, the
    exclusive ones first; none where the system does not say."""
    try:
        # 2: POSIX  ADVISORY  WRITE 8105 fe:00:2408669 120 120
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return []
    ours = {mark(file) for file in (path, *beside(path)) if file.exists()}
    found = [(line[3], int(line[4])) for line in lines if len(line) == 8 and line[5] in ours]
    exclusive_first = sorted(found, key=lambda lock: lock[0] != "WRITE")
    return [pid for _, pid in exclusive_first if pid > 0 and pid != os.getpid()]


def mark(file: Path) -> str:
    """What `/proc/locks` calls a file. (Opening it would give up our own locks on it.)"""
    at = file.stat()
    return f"{os.major(at.st_dev):02x}:{os.minor(at.st_dev):02x}:{at.st_ino}"


def command_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        words = []
    return textwrap.shorten(visible(" ".join(words)), 80, placeholder=" …") or "unknown"


def is_stopped(pid: int) -> bool:
    """By Ctrl-Z, `kill -STOP` or a debugger."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False
