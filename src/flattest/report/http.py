"""Ready-made answers over HTTP/1.1, to readers on this machine.

One thread answers everybody: an answer is found in memory and written at once, so that nobody waits
for another reader, for a file or for a lock.
"""

import asyncio
import contextlib
import hashlib
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import msgspec

from flattest.errors import FlattestError

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
REQUEST_AT_MOST = 16_384  # bytes
PATIENCE = 60.0  # seconds for a reader to say what it wants, and to take the answer


class Resource(msgspec.Struct, frozen=True):
    """A ready-made answer."""

    kind: str
    body: bytes
    tag: str


def resource(kind: str, body: bytes) -> Resource:
    return Resource(kind, body, f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"')


class Request(msgspec.Struct, frozen=True):
    """What a reader asks; `last` where nothing more will be understood on this connection."""

    method: str
    path: str
    headers: dict[str, str]
    last: bool


def parsed(head: bytes) -> Request | None:
    """The request of which this is the head; None where it is none."""
    first, *fields = head.decode("latin-1").split("\r\n")
    try:
        method, path, version = first.split(" ")
    except ValueError:
        return None
    if not version.startswith("HTTP/1."):
        return None
    pairs = (field.partition(":") for field in fields)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    # Nobody reads a request's body, so what follows one would be taken for a request.
    body = "content-length" in headers or "transfer-encoding" in headers
    closing = headers.get("connection", "").lower() == "close" or version == "HTTP/1.0"
    return Request(method, path, headers, body or closing)


class Answers:
    """What there is to read, by path, and the policy that goes with it."""

    def __init__(self, policy: str) -> None:
        self.found: dict[str, Resource] = {}
        self.policy = policy

    def answer(self, asked: Request) -> list[bytes]:
        """The answer's head, and its body where it has one.

        To HEAD the head alone: a reader would take a body for the beginning of the next answer.
        """
        parts = self._parts(asked)
        return parts[:1] if asked.method == "HEAD" else parts

    def _parts(self, asked: Request) -> list[bytes]:
        if asked.method not in ("GET", "HEAD"):
            return self.refusal(HTTPStatus.METHOD_NOT_ALLOWED, "Allow: GET, HEAD")
        host = asked.headers.get("host", "")
        if (host.rpartition(":")[0] or host) not in NAMES:
            # Another name for this machine: some web page's attempt to read through its reader.
            return self.refusal(HTTPStatus.MISDIRECTED_REQUEST)
        found = self.found.get(asked.path.partition("?")[0])
        if found is None:
            return self.refusal(HTTPStatus.NOT_FOUND)
        tag = f"ETag: {found.tag}"
        if asked.headers.get("if-none-match") == found.tag:
            return [self._head(HTTPStatus.NOT_MODIFIED, tag)]
        length = f"Content-Length: {len(found.body)}"
        return [self._head(HTTPStatus.OK, tag, length, f"Content-Type: {found.kind}"), found.body]

    def refusal(self, status: HTTPStatus, *fields: str) -> list[bytes]:
        body = f"{status.phrase}\n".encode()
        length = f"Content-Length: {len(body)}"
        kind = "Content-Type: text/plain; charset=utf-8"
        return [self._head(status, length, kind, *fields), body]

    def _head(self, status: HTTPStatus, *fields: str) -> bytes:
        lines = (
            f"HTTP/1.1 {status.value} {status.phrase}",
            "Server: flattest",
            f"Content-Security-Policy: {self.policy}",
            "X-Content-Type-Options: nosniff",
            "Referrer-Policy: no-referrer",
            "Cross-Origin-Resource-Policy: same-origin",
            "Cache-Control: no-cache",
            *fields,
        )
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class Link(asyncio.Protocol):
    """One reader's connection: requests in, answers out, the next when the last has gone."""

    def __init__(self, answers: Answers, links: set[asyncio.Transport]) -> None:
        self.answers, self.links = answers, links
        self.heard, self.paused = b"", False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.links.add(transport)
        self._wait()

    def connection_lost(self, error: Exception | None) -> None:
        self.links.discard(self.transport)
        self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        self.timer.cancel()
        self._wait()
        self.heard += data
        self._go_on()

    def pause_writing(self) -> None:
        self.paused = True
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.paused = False
        self.transport.resume_reading()
        self._go_on()

    def _wait(self) -> None:
        self.timer = asyncio.get_running_loop().call_later(PATIENCE, self._give_up)

    def _give_up(self) -> None:
        self.transport.abort()

    def _go_on(self) -> None:
        while not (self.paused or self.transport.is_closing()) and b"\r\n\r\n" in self.heard:
            head, _, self.heard = self.heard.partition(b"\r\n\r\n")
            self._answer(parsed(head) if len(head) <= REQUEST_AT_MOST else None)
        if len(self.heard) > REQUEST_AT_MOST and not self.paused:
            self._answer(None)

    def _answer(self, asked: Request | None) -> None:
        if asked is None:
            parts = self.answers.refusal(HTTPStatus.BAD_REQUEST)
        else:
            parts = self.answers.answer(asked)
        for part in parts:
            self.transport.write(part)
        if asked is None or asked.last or asked.method not in ("GET", "HEAD"):
            self.transport.close()


class Server:
    """Answers on a port of this machine, in a thread of its own, within its `with` block."""

    def __init__(self, port: int, policy: str) -> None:
        self.answers = Answers(policy)
        self.found = self.answers.found
        self.links: set[asyncio.Transport] = set()
        if not 0 <= port <= 65_535:
            raise FlattestError(f"A port is a number from 0 to 65535, not {port}.")
        try:
            self.socket = socket.create_server((HOST, port), backlog=128)
        except OSError as error:
            raise FlattestError(
                f"Cannot listen on port {port}: {error.strerror}; choose another with --port."
            ) from error
        self.port: int = self.socket.getsockname()[1]

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/"

    def close(self) -> None:
        self.socket.close()

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        loop = asyncio.new_event_loop()
        over = asyncio.Event()
        thread = threading.Thread(target=loop.run_until_complete, args=(self._serve(over),))
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(over.set)
            thread.join()
            loop.close()

    async def _serve(self, over: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Link(self.answers, self.links), sock=self.socket)
        await over.wait()
        server.close()
        # Hang up on everybody: a reader that stays connected would go on being answered.
        for link in list(self.links):
            link.abort()
        await asyncio.sleep(0)
