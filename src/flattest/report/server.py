"""The page, live: read-only, on this machine only.

A process of its own reads the store and sends what changed; the server keeps ready-made answers in
memory and never touches a file, so that no request can reach one and none waits for the store.

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
from flattest.report.document import policy, render
from flattest.report.http import Resource, Server, resource
from flattest.report.reader import Page, Reader
from flattest.runs.store import Store

LOOK_EVERY = 1.0  # seconds between two looks at the store
# The whole page is put together anew after this many times what that took: the page itself asks
# for what has changed since.
PAGE_REST = 20
READER_PATIENCE = 600.0  # seconds for the first look
YIELDING = 10  # how much nicer than the server the process is that reads for it


class News(msgspec.Struct, frozen=True):
    """What the reading process sends: new answers by path, and the paths that are gone."""

    answers: dict[str, Resource]
    gone: tuple[str, ...] = ()


class Newsroom:
    """Turns looks at a store into news."""

    def __init__(self, store: Store) -> None:
        self.reader = Reader(store)
        self.marks: dict[str, str] = {}
        self.outline = b""
        self.next_page = 0.0

    def look(self) -> News:
        """What has changed since the last look."""
        page = self.reader.page()
        marks, outline = page.outline.marks, msgspec.json.encode(page.outline)
        changed = [key for key, mark in marks.items() if self.marks.get(key) != mark]
        gone = tuple(_path(key) for key in self.marks if key not in marks)
        answers = {_path(key): _run(page, key) for key in changed}
        if outline != self.outline:
            answers["/live"] = resource("application/json", outline)
        if time.monotonic() >= self.next_page:
            began = time.monotonic()
            body = render(page, live=True).encode()
            answers["/"] = resource("text/html; charset=utf-8", body)
            self.next_page = time.monotonic() + PAGE_REST * (time.monotonic() - began)
        self.marks, self.outline = marks, outline
        return News(answers, gone)


def _path(key: str) -> str:
    """As the browser's encodeURIComponent has it: a folder may have any name."""
    return "/run/" + quote(key, safe="!'()*")


def _run(page: Page, key: str) -> Resource:
    found = {"run": page.runs[key], "network": page.networks.get(key)}
    return resource("application/json", msgspec.json.encode(found))


def report_news(root: Path, pipe: Connection) -> None:
    """The reading process: looks at the store until the server is gone."""
    parent, patient = os.getppid(), False
    room = Newsroom(Store.open(root))
    # Ctrl-C in a terminal reaches this process too; the server ends it.
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        while os.getppid() == parent:
            # A store that cannot be read now may be readable at the next look.
            with contextlib.suppress(StoreError):
                news = room.look()
                if news.answers or news.gone:
                    pipe.send(news)
                # Somebody waits for the first page; nobody for the next look.
                if not patient:
                    os.nice(YIELDING)
                    patient = True
            time.sleep(LOOK_EVERY)


@contextlib.contextmanager
def serving(root: Path, port: int) -> Iterator[Server]:
    """A server of the store at `root`, answering in threads of its own; ended with the block."""
    Store.open(root)  # refuses with a sentence what the reading process could only die of
    server = Server(port, f"{policy(live=True)}; frame-ancestors 'none'")
    here, there = multiprocessing.Pipe(duplex=False)
    # Spawned, not forked: JAX's threads do not survive a fork.
    spawned = multiprocessing.get_context("spawn")
    reader = spawned.Process(target=report_news, args=(root, there), daemon=True)
    try:
        reader.start()
        there.close()
        take(_first_news(here), server)
        threading.Thread(target=_follow, args=(here, server), daemon=True).start()
        with server.answering():
            yield server
    finally:
        server.close()
        reader.terminate()
        reader.join()


def take(news: News, server: Server) -> None:
    for path in news.gone:
        server.found.pop(path, None)
    server.found.update(news.answers)


def _first_news(pipe: Connection) -> News:
    with contextlib.suppress(EOFError):
        if pipe.poll(READER_PATIENCE):
            return pipe.recv()
    raise FlattestError("The process that reads the store ended; `flattest report` may say why.")


def _follow(pipe: Connection, server: Server) -> None:
    """Take the news as they come; once there are none to come, the page is told by a 404."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            take(pipe.recv(), server)
    take(News({}, gone=("/live",)), server)
