"""/metrics and /health, on a port of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Slices
from ottla.broker.metrics import CONTENT_TYPE, exposition_steps

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.network.http import HttpServer, PageSteps


class Pages:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.slices = Slices(broker.loop)
        self._server: HttpServer | None = None

    def serve(self, host: str, port: int) -> int:
        """From now on; at which port."""
        from ottla.broker.network.http import HttpServer

        self._server = HttpServer(self.slices, host, port, {"/metrics": self._metrics, "/health": self._health})
        return self._server.port

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.slices.cancel_all()

    def _metrics(self) -> PageSteps:
        text = yield from exposition_steps(self._broker)
        return 200, CONTENT_TYPE, text

    def _health(self) -> PageSteps:
        yield None
        logs = self._broker.logs.logs
        failed = [f"{topic}-{index}" for (topic, index), log in logs.items() if log.failure is not None]
        if failed:
            return 503, "text/plain", f"the disk failed for {', '.join(failed)}\n".encode()
        return 200, "text/plain", b"ok\n"
