"""A request that a group cannot serve."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode
from ottla.wire.texts import shortened


class GroupRefusal(Exception):
    """Raised before anything is written: what an operation has written stays."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.meaning)
        self.code = code
        self.message = None if message is None else shortened(message)  # it may name what a client sent
