"""One connection to a broker, as bare as a test needs it: frames out, frames in, or what came instead."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias, cast

from ottla.wire.parts import Buffer

_SIZE = struct.Struct(">i")


class NoFrame(Enum):
    """What may come in place of a frame."""

    CLOSED = "closed"
    SILENCE = "no answer"


Outcome: TypeAlias = bytes | NoFrame


class Connection:
    def __init__(self, address: tuple[str, int], within_s: float = 10.0) -> None:
        self._socket = socket.create_connection(address, timeout=within_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, parts: Sequence[object]) -> None:
        """What the other side no longer takes is not an error here: reading tells that it has closed."""
        try:
            self._socket.sendall(b"".join(cast("Sequence[Buffer]", parts)))
        except OSError:
            pass

    def receive(self, within_s: float) -> Outcome:
        """The next frame without its size."""
        deadline = time.monotonic() + within_s
        size = self._read(_SIZE.size, deadline)
        return size if isinstance(size, NoFrame) else self._read(_SIZE.unpack(size)[0], deadline)

    def fileno(self) -> int:
        return self._socket.fileno()

    def end_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    def _read(self, size_bytes: int, deadline: float) -> Outcome:
        taken = bytearray()
        while len(taken) < size_bytes:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                piece = self._socket.recv(size_bytes - len(taken))
            except TimeoutError:
                return NoFrame.SILENCE
            except OSError:
                return NoFrame.CLOSED
            if not piece:
                return NoFrame.CLOSED
            taken += piece
        return bytes(taken)
