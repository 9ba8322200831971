"""Memory that batches were encoded in, kept for the next ones: to touch fresh memory costs more than to fill it."""

from __future__ import annotations

MOST_SPARES = 8
LARGEST_SPARE_BYTES = 2 << 20


class Spares:
    def __init__(self) -> None:
        self._spares: list[bytearray] = []

    def take(self) -> bytearray:
        """To be written over, whatever it holds."""
        while self._spares:
            memory = self._spares.pop()
            try:
                memory.pop()  # which is refused while anybody looks at it
            except BufferError:
                continue
            return memory
        return bytearray()

    def give(self, memory: bytearray) -> None:
        """It is done with. Nobody writes from it any more."""
        if len(self._spares) < MOST_SPARES and 0 < len(memory) <= LARGEST_SPARE_BYTES:
            self._spares.append(memory)
