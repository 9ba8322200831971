"""A client on a simulated connection: sends requests, and reads the answers when the simulation has brought them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ottla.testing.simulated_system import SimulatedSystem
from ottla.testing.simulation.network import SimulatedSocket
from ottla.wire.apis import Api
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.header import read_correlation_id
from ottla.wire.parts import Buffer
from ottla.wire.schema import Request, Response

if TYPE_CHECKING:
    from ottla.broker.loop.loop import Loop

SIZE_BYTES = 4
PATIENCE_SECONDS = 60.0


class SimulatedClient:
    def __init__(self, system: SimulatedSystem, loop: Loop, port: int, client_id: str = "simulated") -> None:
        self._system = system
        self._loop = loop
        self._client_id = client_id
        self._socket: SimulatedSocket = system.connect_client(port)
        self._unsent = bytearray()
        self._received = bytearray()
        self._sent: dict[int, tuple[Api, int]] = {}
        self._number = 0
        self.answers: dict[int, Response] = {}
        self.order: list[int] = []  # of the answers, as they came
        self.is_closed = False

    def send(self, request: Request, version: int | None = None) -> int:
        """Send a request on its way; the number under which its answer will be."""
        version = request.api.highest if version is None else version
        self._number += 1
        self._sent[self._number] = request.api, version
        parts = encode_request(self._number, self._client_id, request, version)
        self._unsent += b"".join(cast("list[Buffer]", parts))
        self.step()
        return self._number

    def step(self) -> None:
        """Move as many bytes as go."""
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.is_closed = True
        try:
            while data := self._socket.recv(1 << 20):
                self._received += data
                self._read_answers()
            self.is_closed = True
        except BlockingIOError:
            pass

    def _read_answers(self) -> None:
        received = self._received
        while len(received) >= SIZE_BYTES:
            end = SIZE_BYTES + int.from_bytes(received[:SIZE_BYTES], "big")
            if len(received) < end:
                return
            frame = bytes(received[SIZE_BYTES:end])
            del received[:end]
            number = read_correlation_id(frame)
            self.answers[number] = decode_response(frame, *self._sent.pop(number))[1]
            self.order.append(number)

    def answer(self, number: int, most_seconds: float = PATIENCE_SECONDS) -> Any:
        """Let the simulation run until this answer is there."""

        def is_there() -> bool:
            self.step()
            return number in self.answers or self.is_closed

        self._system.run_until(self._loop, is_there, most_seconds)
        if number not in self.answers:
            raise TimeoutError(f"no answer to request {number} after {most_seconds} s, closed: {self.is_closed}")
        return self.answers.pop(number)

    def ask(self, request: Request, version: int | None = None) -> Any:
        return self.answer(self.send(request, version))

    def close(self) -> None:
        self._socket.close()
        self.is_closed = True
