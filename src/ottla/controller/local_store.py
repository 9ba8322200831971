"""A store on this machine: `sqlite_nodes` keeps its nodes in a file, `memory_nodes` in the memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Protocol

from ottla.controller.store import StoreError
from ottla.controller.threaded_store import Nodes, ThreadedStore

__all__ = ["LocalNodes", "LocalStore", "Timer"]


class LocalNodes(Nodes, Protocol):
    def look(self) -> Collection[str] | None:
        """End the sessions of those who died; the paths that changed by others since, None if it may be any."""


class Timer(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Timer]


class LocalStore(ThreadedStore[LocalNodes]):
    max_commit_bytes = sys.maxsize
    _timer: Timer | None = None

    def look(self) -> None:
        self._look(lambda: None)

    def _look(self, looked: Callable[[], None]) -> None:
        def told(changed: Collection[str] | StoreError | None) -> None:
            try:
                if not isinstance(changed, StoreError):
                    self._tell(list(self._watches) if changed is None else changed)
            finally:
                looked()

        self._ask(lambda nodes: nodes.look(), told)

    def keep_looking(self, seconds: float, call_later: CallLater) -> None:
        """Have a look again and again: for a store that other processes use, too."""

        def again() -> None:
            if not self._is_over:
                self._timer = call_later(seconds, lambda: self._look(again))

        again()

    def _end(self) -> None:
        super()._end()
        if self._timer is not None:
            self._timer.cancel()
