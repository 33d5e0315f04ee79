"""The page, live: read-only, on this machine only.

A process of its own reads the store and sends what changed; the server keeps ready-made answers in
memory and never touches a file, so that no request can reach one and none waits for the store.

    /          the page, with all there was when it was last put together
    /live      the page's outline, with a mark for each run that changes when the run does
    /run/KEY   one run, with the inside of its network
"""

import contextlib
import hashlib
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from flattest.errors import FlattestError
from flattest.report.document import policy, render
from flattest.report.reader import Page, Reader
from flattest.store import Store, StoreError

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
LOOK_EVERY = 1.0  # seconds between two looks at the store
# The whole page is put together anew after this many times what that took: the page itself asks
# for what has changed since.
PAGE_REST = 20
READER_PATIENCE = 600.0  # seconds for the first look


class Resource(msgspec.Struct, frozen=True):
    """A ready-made answer."""

    kind: str
    body: bytes
    tag: str


class News(msgspec.Struct, frozen=True):
    """What the reading process sends: new answers by path, and the paths that are gone."""

    answers: dict[str, Resource]
    gone: tuple[str, ...] = ()


def resource(kind: str, body: bytes) -> Resource:
    return Resource(kind, body, f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"')


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
    parent = os.getppid()
    room = Newsroom(Store.open(root))
    # Ctrl-C in a terminal reaches this process too; the server ends it.
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        while os.getppid() == parent:
            # A store that cannot be read now may be readable at the next look.
            with contextlib.suppress(StoreError):
                news = room.look()
                if news.answers or news.gone:
                    pipe.send(news)
            time.sleep(LOOK_EVERY)


class Server(ThreadingHTTPServer):
    """Ready-made answers over HTTP, to readers on this machine."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int) -> None:
        self.answers: dict[str, Resource] = {}
        self.links: set[Any] = set()
        self.policy = f"{policy(live=True)}; frame-ancestors 'none'"
        try:
            super().__init__((HOST, port), Handler)
        except (OSError, OverflowError) as error:
            raise FlattestError(
                f"Cannot listen on port {port}: {error}; choose another with --port."
            ) from error

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        self.links.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.links.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Hang up on everybody: a reader that stays connected would go on being answered."""
        super().server_close()
        for link in list(self.links):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # That a reader hung up is no error.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def take(self, news: News) -> None:
        for path in news.gone:
            self.answers.pop(path, None)
        self.answers.update(news.answers)


class Handler(BaseHTTPRequestHandler):
    """GET and HEAD of the answers there are; anything else is refused."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "flattest", ""
    timeout = 60  # seconds for a reader to say what it wants
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        found = self._answer()
        if found is not None:
            self._send(HTTPStatus.OK, found.kind, found.body, found.tag)

    def do_HEAD(self) -> None:
        self.do_GET()

    def __getattr__(self, name: str) -> Any:
        # The base class looks for do_METHOD.
        if name.startswith("do_"):
            return self._refuse_method
        raise AttributeError(name)

    def _answer(self) -> Resource | None:
        """What was asked for; None where the request has been dealt with."""
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host not in NAMES:
            # Another name for this machine: some web page's attempt to read through its reader.
            self._say(HTTPStatus.MISDIRECTED_REQUEST)
            return None
        found = self.server.answers.get(self.path)
        if found is None:
            self._say(HTTPStatus.NOT_FOUND)
            return None
        if self.headers.get("If-None-Match") == found.tag:
            self._send(HTTPStatus.NOT_MODIFIED, found.kind, b"", found.tag)
            return None
        return found

    def _refuse_method(self) -> None:
        self.close_connection = True  # the request may have a body, which nobody reads
        self._say(HTTPStatus.METHOD_NOT_ALLOWED, Allow="GET, HEAD", Connection="close")

    def _say(self, status: HTTPStatus, **headers: str) -> None:
        self._send(status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode(), **headers)

    def _send(
        self, status: HTTPStatus, kind: str, body: bytes, tag: str = "", **headers: str
    ) -> None:
        self.send_response_only(status)
        fields = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": self.server.policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-cache",
        } | headers
        if tag:
            fields["ETag"] = tag
        if status == HTTPStatus.NOT_MODIFIED:
            del fields["Content-Length"]
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Readers' requests are nobody's business."""


@contextlib.contextmanager
def serving(root: Path, port: int) -> Iterator[Server]:
    """A server of the store at `root`, answering in threads of its own; ended with the block."""
    Store.open(root)  # refuses with a sentence what the reading process could only die of
    server = Server(port)
    here, there = multiprocessing.Pipe(duplex=False)
    # Spawned, not forked: JAX's threads do not survive a fork.
    spawned = multiprocessing.get_context("spawn")
    reader = spawned.Process(target=report_news, args=(root, there), daemon=True)
    try:
        reader.start()
        there.close()
        server.take(_first_news(here))
        for work in (server.serve_forever, lambda: _follow(here, server)):
            threading.Thread(target=work, daemon=True).start()
        yield server
        server.shutdown()
    finally:
        server.server_close()
        reader.terminate()
        reader.join()


def _first_news(pipe: Connection) -> News:
    with contextlib.suppress(EOFError):
        if pipe.poll(READER_PATIENCE):
            return pipe.recv()
    raise FlattestError("The process that reads the store ended; `flattest report` may say why.")


def _follow(pipe: Connection, server: Server) -> None:
    """Take the news as they come; once there are none to come, the page is told by a 404."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            server.take(pipe.recv())
    server.take(News({}, gone=("/live",)))
