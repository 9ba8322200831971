"""A page or two for machines that watch: /metrics and /health, on a port of their own."""

from __future__ import annotations

from collections.abc import Callable, Generator

from ottla.broker.events import Events
from ottla.broker.loop.loop import READ, WRITE, Loop
from ottla.broker.loop.slices import Job, Slices, Waiting
from ottla.broker.loop.system import Socket
from ottla.broker.network.acceptor import Acceptor

events = Events("ottla.broker")

MOST_REQUEST_BYTES = 8192
PATIENCE_SECONDS = 10.0
BACKLOG = 16
MOST_VISITS = 100  # at a time: files are for clients

Answer = tuple[int, str, bytes]  # status, content type, text
PageSteps = Generator[Job | Waiting | None, None, Answer]
Page = Callable[[], PageSteps]
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class HttpServer:
    """Answers one GET a connection, and closes it."""

    def __init__(self, slices: Slices, host: str, port: int, pages: dict[str, Page]) -> None:
        """`slices`: in which pages are made. Those who ask for one that is being made share it."""
        self._loop = loop = slices.loop
        self._slices = slices
        self._pages = pages
        self._asking: dict[str, list[_Visit]] = {}
        self._visits: set[_Visit] = set()
        self._acceptor = Acceptor(loop, host, port, BACKLOG, self._admit)
        self.host = host
        self.port = self._acceptor.port

    def _admit(self, accepted: Socket, _address: str) -> None:
        if len(self._visits) >= MOST_VISITS:
            accepted.close()
            return
        self._visits.add(_Visit(self._loop, accepted, self._asked, self._visits.discard))

    def _asked(self, visit: _Visit, request: bytes) -> None:
        line = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(line) != 3:
            visit.answer(_message(400, "text/plain", b"this is not HTTP\n"))
            return
        method, target, _ = line
        name = target.partition("?")[0]
        if method not in ("GET", "HEAD"):
            visit.answer(_message(405, "text/plain", b"only GET is answered\n"))
        elif name not in self._pages:
            visit.answer(_message(404, "text/plain", f"there is {', '.join(self._pages)}\n".encode()))
        else:
            self._make(name, visit)

    def _make(self, name: str, visit: _Visit) -> None:
        asking = self._asking.get(name)
        if asking is not None:
            asking.append(visit)
            return

        def made(answer: Answer, failure: Exception | None) -> None:
            if failure is not None:
                events.failure("a page cannot be made", page=name)
                answer = 500, "text/plain", b"this page cannot be made; the log of the broker says why\n"
            message = _message(*answer)
            for each in self._asking.pop(name):
                each.answer(message)

        self._asking[name] = [visit]
        self._slices.start(self._pages[name](), made)

    def close(self) -> None:
        self._acceptor.close()
        for visit in list(self._visits):
            visit.close()


def _message(status: int, content_type: str, body: bytes) -> bytes:
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
        asked: Callable[[_Visit, bytes], None],
        gone: Callable[[_Visit], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._asked = asked
        self._gone = gone
        self._request = b""
        self._is_asked = False
        self._unsent = memoryview(b"")
        loop.watch(sock, READ, self._ready)
        self._timer = loop.call_later(PATIENCE_SECONDS, self.close)

    def _ready(self, _events: int) -> None:
        try:
            if self._unsent:
                self._send()
            elif self._is_asked:
                self.close()
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
            self._is_asked = True
            self._timer.cancel()
            self._loop.change(self._socket, 0, self._ready)  # which still tells of an end
            self._asked(self, self._request)

    def answer(self, message: bytes) -> None:
        if self._socket.fileno() >= 0:
            self._unsent = memoryview(message)
            self._timer = self._loop.call_later(PATIENCE_SECONDS, self.close)
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
