"""A page or two for machines that watch: /metrics and /health, on a port of their own."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.acceptor import Acceptor
from ottla.broker.loop import READ, WRITE, Loop
from ottla.broker.system import Socket

MOST_REQUEST_BYTES = 8192
PATIENCE_SECONDS = 10.0
BACKLOG = 16
MOST_VISITS = 100  # at a time: files are for clients

Page = Callable[[], tuple[int, str, str]]  # status, content type, text
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class HttpServer:
    """Answers one GET a connection, and closes it."""

    def __init__(self, loop: Loop, host: str, port: int, pages: dict[str, Page]) -> None:
        self._loop = loop
        self._pages = pages
        self._visits: set[_Visit] = set()
        self._acceptor = Acceptor(loop, host, port, BACKLOG, self._admit)
        self.host = host
        self.port = self._acceptor.port

    def _admit(self, accepted: Socket, _address: str) -> None:
        if len(self._visits) >= MOST_VISITS:
            accepted.close()
            return
        self._visits.add(_Visit(self._loop, accepted, self._answer, self._visits.discard))

    def _answer(self, request: bytes) -> bytes:
        line = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(line) != 3:
            return _message(400, "text/plain", "this is not HTTP\n")
        method, target, _ = line
        page = self._pages.get(target.partition("?")[0])
        if method not in ("GET", "HEAD"):
            return _message(405, "text/plain", "only GET is answered\n")
        if page is None:
            return _message(404, "text/plain", f"there is {', '.join(self._pages)}\n")
        return _message(*page())

    def close(self) -> None:
        self._acceptor.close()
        for visit in list(self._visits):
            visit.close()


def _message(status: int, content_type: str, text: str) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


class _Visit:
    def __init__(
        self,
        loop: Loop,
        sock: Socket,
        answer: Callable[[bytes], bytes],
        gone: Callable[[_Visit], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._answer = answer
        self._gone = gone
        self._request = b""
        self._unsent = b""
        loop.watch(sock, READ, self._ready)
        self._timer = loop.call_later(PATIENCE_SECONDS, self.close)

    def _ready(self, _events: int) -> None:
        try:
            if self._unsent:
                self._send()
            else:
                self._receive()
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def _receive(self) -> None:
        data = self._socket.recv(MOST_REQUEST_BYTES)
        self._request += data
        if not data or len(self._request) > MOST_REQUEST_BYTES:
            self.close()
        elif b"\r\n\r\n" in self._request:
            self._unsent = self._answer(self._request)
            self._loop.change(self._socket, WRITE, self._ready)

    def _send(self) -> None:
        self._unsent = self._unsent[self._socket.send(self._unsent) :]
        if not self._unsent:
            self.close()

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._timer.cancel()
            self._loop.forget(self._socket)
            self._socket.close()
            self._gone(self)
