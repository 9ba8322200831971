"""/metrics and /health of a runner, on a port of their own: what its tasks have told last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ottla.connect.state import TaskStatus
from ottla.connect.task_machine import State

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_SECONDS = 10.0
_FIGURES: tuple[tuple[str, str, str, Callable[[TaskStatus], float | None]], ...] = (
    ("records_total", "counter", "Records moved.", lambda status: status.records),
    ("bytes_total", "counter", "Bytes of their keys and values.", lambda status: status.bytes),
    ("dead_letters_total", "counter", "Records that could not be taken.", lambda status: status.dead_letters),
    ("retries_total", "counter", "Times that a task was begun again.", lambda status: status.retries),
    ("lag_seconds", "gauge", "How far a task is behind, where its connector knows.", lambda status: status.lag_seconds),
)


class RunnerPages:
    """`tell` is to be given what a runner tells. Nothing is asked of the tasks or of the cluster."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], TaskStatus] = {}
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None

    def tell(self, connector: str, task: str, status: TaskStatus) -> None:
        with self._lock:
            self._told[connector, task] = status
            if task != "-":
                self._told.pop((connector, "-"), None)  # it is in its group

    def serve(self, host: str, port: int) -> int:
        """The port it listens on."""
        pages = {"/metrics": self.metrics, "/health": self.health}
        self._server = ThreadingHTTPServer((host, port), _handler(pages))
        threading.Thread(target=self._server.serve_forever, name="connect-pages", daemon=True).start()
        return int(self._server.server_address[1])

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def metrics(self) -> tuple[int, str]:
        with self._lock:
            told = sorted(self._told.items())
        return 200, "".join(f"{line}\n" for line in _lines(told))

    def health(self) -> tuple[int, str]:
        """Not well: a task has failed, or this runner is not in the group of a connector."""
        with self._lock:
            told = sorted(self._told.items())
        ill = [
            f"{connector}/{task}: {status.error or status.state}"
            for (connector, task), status in told
            if status.state == State.FAILED.value or task == "-"
        ]
        return (503, "\n".join(ill) + "\n") if ill else (200, "ok\n")


def _lines(told: list[tuple[tuple[str, str], TaskStatus]]) -> Iterator[str]:
    for name, kind, text, figure in _FIGURES:
        yield f"# HELP ottla_connect_{name} {text}"
        yield f"# TYPE ottla_connect_{name} {kind}"
        for (connector, task), status in told:
            value = figure(status)
            if value is not None:
                yield f'ottla_connect_{name}{{connector="{connector}",task="{task}"}} {value}'
    yield "# HELP ottla_connect_tasks Tasks of this runner, by state."
    yield "# TYPE ottla_connect_tasks gauge"
    for connector in sorted({connector for (connector, _), _ in told}):
        states = [status.state for (of, _), status in told if of == connector]
        for state in sorted(set(states)):
            yield f'ottla_connect_tasks{{connector="{connector}",state="{state}"}} {states.count(state)}'


def _handler(pages: dict[str, Callable[[], tuple[int, str]]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            code, text = (404, "there are /metrics and /health\n") if page is None else page()
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing: a scrape every few seconds is no event."""

    return Handler
