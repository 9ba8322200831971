"""The owner of a log: what a log tells, because it concerns more than the log itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class LogOwner:
    """One that keeps nothing. Others tell what they do with it."""

    def preparing_truncation(self, _offset: int) -> Callable[[], None]:
        """The job, for any thread, of what `before_truncation` would wait for."""
        return lambda: None

    def before_truncation(self, offset: int) -> None:
        """The log is about to be cut there."""

    def before_folder(self) -> None:
        """The log is about to make its folder."""

    def failed(self, error: OSError) -> None:
        """The disk refused something; `Log.failure` tells whether the log goes on."""

    def with_room(self, make: Callable[[], T]) -> T:
        """Make something, also on a full disk if there is a way."""
        return make()
