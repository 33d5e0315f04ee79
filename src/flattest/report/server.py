"""The page, live: read-only, on this machine only.

A process of its own watches the store and sends what changed; the server keeps ready-made answers
in memory and never touches a file, so that no request can reach one and none waits for the store.

    /          the page, with all there was when it was last put together
    /live      the page's outline, with a mark for each run that changes when the run does
    /run/KEY   one run, with the inside of its network
"""

import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import quote

import msgspec

from flattest.errors import FlattestError
from flattest.files import StoreError
from flattest.machine import interrupts_held_back
from flattest.report.document import policy, render
from flattest.report.http import Resource, Server, resource
from flattest.report.reader import Page, Reader
from flattest.runs.store import Store

LOOK_EVERY = 1.0  # seconds between two looks at the store
# The whole page is put together anew after this many times what that took: the page itself asks
# for what has changed since.
PAGE_REST = 20
FIRST_LOOK = 600.0  # seconds at most
NICENESS = 10  # of the watching process, at least: the server comes first


class Update(msgspec.Struct, frozen=True):
    """What the watching process sends: new answers by path, and the paths that are gone."""

    answers: dict[str, Resource]
    gone: tuple[str, ...] = ()


class Watcher:
    """Finds what has changed in a store since the last look."""

    def __init__(self, store: Store) -> None:
        self.reader = Reader(store)
        self.marks: dict[str, str] = {}
        self.outline = b""
        self.next_page = 0.0

    def look(self) -> Update:
        page = self.reader.page()
        before, self.marks = self.marks, page.outline.marks
        changed = [key for key, mark in self.marks.items() if before.get(key) != mark]
        answers = {_path(key): _run(page, key) for key in changed}
        outline = msgspec.json.encode(page.outline)
        if outline != self.outline:
            self.outline = outline
            answers["/live"] = resource("application/json", outline)
        began = time.monotonic()
        if began >= self.next_page:
            answers["/"] = resource("text/html; charset=utf-8", render(page, live=True).encode())
            self.next_page = time.monotonic() + PAGE_REST * (time.monotonic() - began)
        return Update(answers, gone=tuple(_path(key) for key in before.keys() - self.marks))


def _path(key: str) -> str:
    """As the browser's encodeURIComponent has it: a folder may have any name."""
    return "/run/" + quote(key, safe="!'()*")


def _run(page: Page, key: str) -> Resource:
    found = {"run": page.runs[key], "network": page.networks.get(key)}
    return resource("application/json", msgspec.json.encode(found))


def watch(root: Path, pipe: Connection) -> None:
    """The watching process: looks at the store until the server is gone."""
    server, watcher = os.getppid(), Watcher(Store.open(root))
    # Ctrl-C in a terminal reaches this process too; the server ends it.
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        while os.getppid() == server:
            # A store that cannot be read now may be readable at the next look.
            with contextlib.suppress(StoreError):
                update = watcher.look()
                if update.answers or update.gone:
                    pipe.send(update)
                # Somebody waits for the first page, nobody for the next look.
                os.nice(max(0, NICENESS - os.nice(0)))
            time.sleep(LOOK_EVERY)


@contextlib.contextmanager
def serving(root: Path, port: int) -> Iterator[Server]:
    """A server of the store at `root`, answering in threads of its own; ended with the block."""
    Store.open(root)  # refuses with a sentence what the watching process could only die of
    server = Server(port, f"{policy(live=True)}; frame-ancestors 'none'")
    here, there = multiprocessing.Pipe(duplex=False)
    # Spawned, not forked: JAX's threads do not survive a fork.
    watcher = multiprocessing.get_context("spawn").Process(
        target=watch, args=(root, there), daemon=True
    )
    try:
        with interrupts_held_back():
            watcher.start()
        there.close()
        _apply(_first_update(here), server)
        threading.Thread(target=_follow, args=(here, server), daemon=True).start()
        with server.answering():
            yield server
    finally:
        server.server_close()
        if watcher.pid is not None:
            watcher.terminate()
            watcher.join()


def _apply(update: Update, server: Server) -> None:
    for path in update.gone:
        server.found.pop(path, None)
    server.found.update(update.answers)


def _first_update(pipe: Connection) -> Update:
    with contextlib.suppress(EOFError):
        if pipe.poll(FIRST_LOOK):
            return pipe.recv()
    raise FlattestError("The process that reads the store ended; `flattest report` may say why.")


def _follow(pipe: Connection, server: Server) -> None:
    """Apply updates as they come; after the last one, `/live` is not found, which the page says."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            _apply(pipe.recv(), server)
    _apply(Update({}, gone=("/live",)), server)
