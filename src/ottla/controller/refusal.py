"""Why something may not be, in Kafka's code and words."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode
from ottla.wire.texts import shortened


class Refusal(Exception):
    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = None if message is None else shortened(message)  # it may name what a client sent

    @property
    def bare(self) -> Refusal:
        """The same, to be kept: one that was raised has the frames that it came through, and they have who keeps it."""
        return Refusal(self.code, self.message)
