"""The place of one answer in a connection's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.wire.parts import Part


class Slot:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.parts: list[Part] | None = None

    def answer(self, parts: list[Part]) -> None:
        """Give the answer. It is sent after those before it. No parts: the client expects no answer."""
        self.parts = parts
        self.connection.answered()
