"""The memory of answers that are not sent yet, of all connections together."""

from __future__ import annotations

MOST_BYTES = 256 << 20


class UnsentMemory:
    """Many clients that do not read what they have asked for must not take all the memory there is."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.held_bytes = 0
        self._most_bytes = most_bytes

    @property
    def is_scarce(self) -> bool:
        """Whether nobody may ask for more before its last answer is sent, and files are not read ahead."""
        return self.held_bytes >= self._most_bytes
