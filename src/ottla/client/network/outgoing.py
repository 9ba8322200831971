"""Frames on their way to a transport, in pieces.

A transport copies what the socket does not take at once. So it gets no more than a piece at a time, and a large
batch goes from where it was encoded to the socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol

from ottla.wire.parts import Buffer, Joined

SMALL_BYTES = 64 * 1024
PIECE_BYTES = 512 * 1024


class Transport(Protocol):
    def write(self, data: bytes | bytearray | memoryview, /) -> None: ...

    def is_closing(self) -> bool: ...


class Outgoing:
    """`is_open`: whether the transport takes more at the moment; whoever changes it calls `pump`."""

    def __init__(self) -> None:
        self.is_open = True
        self._pieces: deque[Buffer] = deque()

    def __bool__(self) -> bool:
        """Whether there is something left."""
        return bool(self._pieces)

    def put(self, parts: list[Buffer | Joined]) -> None:
        if len(parts) == 1 and not isinstance(parts[0], Joined) and len(parts[0]) <= SMALL_BYTES:
            self._pieces.append(parts[0])
        else:
            self._pieces += pieces(parts)

    def pump(self, transport: Transport) -> None:
        """Gives the transport what it takes. It may close `is_open` meanwhile."""
        # A transport that has lost its connection would tell of each piece in the log.
        while self._pieces and self.is_open and not transport.is_closing():
            transport.write(self._pieces.popleft())

    def pour(self, transport: Transport) -> None:
        """Gives it all there is."""
        while self._pieces and not transport.is_closing():
            transport.write(self._pieces.popleft())

    def clear(self) -> None:
        self._pieces.clear()


def pieces(parts: Iterable[Buffer | Joined]) -> Iterator[Buffer]:
    """The same bytes: what is small is joined, also with the beginning of what is large, which is cut."""
    small: list[Buffer] = []
    small_bytes = 0
    for part in _buffers(parts):
        rest = memoryview(part)
        while rest:
            head = rest[: SMALL_BYTES - small_bytes]
            if len(rest) > SMALL_BYTES and not small:
                head = rest[:PIECE_BYTES]
                yield head
            else:
                small.append(head)
                small_bytes += len(head)
                if small_bytes == SMALL_BYTES:
                    yield b"".join(small)
                    small, small_bytes = [], 0
            rest = rest[len(head) :]
    if small:
        yield b"".join(small)


def _buffers(parts: Iterable[Buffer | Joined]) -> Iterator[Buffer]:
    for part in parts:
        if isinstance(part, Joined):
            yield from part.buffers
        else:
            yield part
