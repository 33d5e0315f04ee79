"""Ready-made answers over HTTP/1.1, to readers on this machine, by the standard library's server.

Each connection has a thread, which finds its answers in memory: nobody waits for another reader,
for a file or for a lock. A server of our own on asyncio was no better: of 50 readers' answers
(benchmarks/server.py, median of three on two busy cores) 99 % took up to 10 ms here and 67 ms there
at one request per second, 36 and 56 ms (a run) or 72 and 48 ms (the outline) without a pause.
"""

import contextlib
import hashlib
import io
import re
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

import msgspec

from flattest.errors import FlattestError

HOST = "127.0.0.1"
OURS = re.compile(
    rf"({re.escape(HOST)}|localhost)(:[0-9]{{1,5}})?"
)  # any port: it may be forwarded
REQUEST_AT_MOST = 16_384  # bytes
PATIENCE = 60.0  # seconds in all for a reader to send its request, and again to take the answer
CONNECTIONS_AT_MOST = 256  # at once; further ones are hung up on
BREATH = 0.1  # seconds of rest where the system has no connection to give


class Resource(msgspec.Struct, frozen=True):
    """A ready-made answer."""

    kind: str
    body: bytes
    tag: str


def resource(kind: str, body: bytes) -> Resource:
    return Resource(kind, body, f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"')


class Connection(BaseHTTPRequestHandler):
    """One reader's connection: requests in, answers out, the next when the last has gone."""

    server: "Server"
    protocol_version = "HTTP/1.1"
    timeout: ClassVar[float] = PATIENCE
    disable_nagle_algorithm = True
    sent = b""  # by the reader, and not yet understood

    def handle_one_request(self) -> None:
        self.close_connection, self.command = True, ""
        # An OSError: the reader has hung up, or has taken too long.
        with contextlib.suppress(OSError):
            head = self._head()
            if head and self._is_understood(head):
                self._answer()

    def _head(self) -> bytes:
        """The next request up to its empty line, cut where it is too long; nothing at the end.

        The time is for all of it: a byte now and then does not hold a connection.
        """
        until = time.monotonic() + self.timeout
        while b"\r\n\r\n" not in self.sent and len(self.sent) <= REQUEST_AT_MOST:
            self.connection.settimeout(max(until - time.monotonic(), 1e-3))
            more = self.connection.recv(REQUEST_AT_MOST)
            if not more or time.monotonic() > until:
                return b""
            self.sent += more
        self.connection.settimeout(self.timeout)
        head, end, rest = self.sent.partition(b"\r\n\r\n")
        self.sent = rest
        return head + end

    def _is_understood(self, head: bytes) -> bool:
        """Read the request's parts into `command`, `path` and `headers`; refuse what is not one."""
        self.raw_requestline, _, fields = head.partition(b"\r\n")
        if len(head) > REQUEST_AT_MOST or len(self.raw_requestline.split()) != 3:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return False
        connection, self.rfile = self.rfile, io.BytesIO(fields)
        try:
            return self.parse_request()
        finally:
            self.rfile = connection

    def _answer(self) -> None:
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            # Nobody reads a request's body, so what follows one would be taken for a request.
            self.close_connection = True
        if self.command not in ("GET", "HEAD"):
            self.close_connection = True
            return self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "Allow: GET, HEAD")
        if not OURS.fullmatch(self.headers.get("Host", "")):
            # Another name for this machine: some web page's attempt to read through its reader.
            return self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
        found = self.server.found.get(self.path.partition("?")[0])
        if found is None:
            return self._refuse(HTTPStatus.NOT_FOUND)
        tag = f"ETag: {found.tag}"
        if self.headers.get("If-None-Match") == found.tag:
            return self._send(HTTPStatus.NOT_MODIFIED, b"", tag)
        return self._send(HTTPStatus.OK, found.body, tag, f"Content-Type: {found.kind}")

    def send_error(self, code: int, message: Any = None, explain: Any = None) -> None:
        """What the standard library answers to what is not a request."""
        self.close_connection = True
        self._refuse(HTTPStatus(code))

    def _refuse(self, status: HTTPStatus, *fields: str) -> None:
        body = f"{status.phrase}\n".encode()
        self._send(status, body, "Content-Type: text/plain; charset=utf-8", *fields)

    def _send(self, status: HTTPStatus, body: bytes, *fields: str) -> None:
        """To HEAD the head alone: a reader would take a body for the start of the next answer."""
        length = () if status is HTTPStatus.NOT_MODIFIED else (f"Content-Length: {len(body)}",)
        lines = (
            f"HTTP/1.1 {status.value} {status.phrase}",
            "Server: flattest",
            f"Content-Security-Policy: {self.server.policy}",
            "X-Content-Type-Options: nosniff",
            "Referrer-Policy: no-referrer",
            "Cross-Origin-Resource-Policy: same-origin",
            "Cache-Control: no-cache",
            *length,
            *fields,
        )
        self.wfile.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        if self.command != "HEAD":
            self.wfile.write(body)


class Server(socketserver.ThreadingTCPServer):
    """Answers on a port of this machine what is `found` at a path, within `answering`."""

    allow_reuse_address = daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, policy: str) -> None:
        self.policy = policy
        self.found: dict[str, Resource] = {}
        self.connections: set[socket.socket] = set()
        if not 0 <= port <= 65_535:
            raise FlattestError(f"A port is a number from 0 to 65535, not {port}.")
        try:
            super().__init__((HOST, port), Connection)
        except OSError as error:
            raise FlattestError(
                f"Cannot listen on port {port}: {error.strerror}; choose another with --port."
            ) from error
        self.port: int = self.server_address[1]
        self.address = f"http://{HOST}:{self.port}/"

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            connection, address = super().get_request()
        except OSError:
            time.sleep(BREATH)  # no descriptors, say: asking again at once would not help
            raise
        self.connections.add(connection)
        return connection, address

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return len(self.connections) <= CONNECTIONS_AT_MOST

    def handle_error(self, request: Any, client_address: Any) -> None:
        """One reader's misfortune is no news for whoever runs the server."""

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        thread = threading.Thread(target=self.serve_forever, args=(0.1,))
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            thread.join()
            self.server_close()
            # Hang up on everybody: a reader that stays connected would go on being answered.
            for connection in list(self.connections):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
