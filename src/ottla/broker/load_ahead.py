"""Imports what a broker starts without, when it has started: the first who needs it need not wait, nor others with it.

A broker serves after some tens of milliseconds because it imports what it needs when that is first asked for. Most of
that takes a few milliseconds; the coordinators take a tenth of a second, and the checksum a third of that. So a broker
that runs for long imports these beforehand, on a thread beside the loop.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.loop.loop import Loop, Timer

FIRST_SECONDS = 0.5  # after the start: who waits for that comes first
PAUSE_SECONDS = 0.02  # for others who want the interpreter
MODULES = (
    "crc32c",
    "ottla.wire.messages.group_records",
    "ottla.coordinator.group_machine",
    "ottla.broker.coordinators.groups",
    "ottla.broker.config.groups",
    "ottla.broker.coordinators.transactions",
)


class LoadAhead:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._left = iter(MODULES)
        self._timer: Timer | None = loop.call_later(FIRST_SECONDS, self._next)
        self.is_over = False

    def _next(self) -> None:
        self._timer = None
        module = next(self._left, None)
        if module is None:
            self.is_over = True
        else:
            self._loop.run_slow(functools.partial(_load, module), self._loaded)

    def _loaded(self, _failure: Exception | None) -> None:
        """What cannot be imported is told to whoever needs it."""
        if not self.is_over:
            self._timer = self._loop.call_later(PAUSE_SECONDS, self._next)

    def stop(self) -> None:
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()


def _load(module: str) -> None:
    importlib.import_module(module)
