"""The memory that frames are received into: one buffer for all who send little, and a few large ones to lend."""

from __future__ import annotations

RECEIVE_BYTES = 1 << 20
STEP_BYTES = 1 << 20  # sizes of large buffers, so that one fits the next frame, too
MOST_LENT_BYTES = 64 << 20
MOST_KEPT_BUFFERS = 4


class ReceiveBuffers:
    def __init__(self) -> None:
        self.shared = memoryview(bytearray(RECEIVE_BYTES))
        self._free: list[memoryview] = []
        self._lent_bytes = 0

    def lend(self, size_bytes: int) -> memoryview | None:
        """A buffer of at least that size for one connection's frame; None when too much is lent already.

        What is in it is of no meaning. Making one costs as much as filling it, so they are used again.
        """
        for number, buffer in enumerate(self._free):
            if len(buffer) >= size_bytes:
                del self._free[number]
                self._lent_bytes += len(buffer)
                return buffer
        rounded = -(-size_bytes // STEP_BYTES) * STEP_BYTES
        if self._lent_bytes + rounded > MOST_LENT_BYTES:
            return None
        self._lent_bytes += rounded
        return memoryview(bytearray(rounded))

    def leave(self, buffer: memoryview) -> None:
        """Somebody keeps it, and it goes with them."""
        self._lent_bytes -= len(buffer)

    def give_back(self, buffer: memoryview) -> None:
        self._lent_bytes -= len(buffer)
        if len(self._free) < MOST_KEPT_BUFFERS:
            self._free.append(buffer)
