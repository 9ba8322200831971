"""Memory that batches were encoded in, kept for the next ones: to touch fresh memory costs more than to fill it."""

from __future__ import annotations

MOST_KEPT = 8
LARGEST_KEPT_BYTES = 2 << 20


class BufferPool:
    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self) -> bytearray:
        """To be written over, whatever it holds."""
        while self._kept:
            memory = self._kept.pop()
            try:
                memory.pop()  # which is refused while anybody looks at it
            except BufferError:
                continue
            return memory
        return bytearray()

    def give(self, memory: bytearray) -> None:
        """It is done with. Nobody writes from it any more."""
        if len(self._kept) < MOST_KEPT and 0 < len(memory) <= LARGEST_KEPT_BYTES:
            self._kept.append(memory)
