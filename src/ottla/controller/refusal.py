"""Why something may not be, in Kafka's code and words."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode


class Refusal(Exception):
    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
