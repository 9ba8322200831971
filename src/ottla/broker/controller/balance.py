"""Preferred leaders lead again, once they are in sync: the controller has a look now and then."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.controller.controller import Controller
from ottla.broker.events import Events
from ottla.broker.loop.loop import Loop, Timer
from ottla.controller.changes import Change
from ottla.controller.leaders import imbalanced, stamped

events = Events("ottla.broker")

MOST_IMBALANCE_PERCENT = 0  # of what a broker should lead: Kafka's newer controllers let nothing pass, either


class BalanceSettings(NamedTuple):
    is_enabled: bool = True
    interval_seconds: float = 300.0


class Balance:
    def __init__(self, loop: Loop, controller: Controller, settings: Callable[[], BalanceSettings]) -> None:
        self._loop = loop
        self._controller = controller
        self._settings = settings
        self._timer: Timer | None = None
        self._wait()

    def _wait(self) -> None:
        self._timer = self._loop.call_later(self._settings().interval_seconds, self._look)

    def _look(self) -> None:
        if self._settings().is_enabled:
            self._controller.submit(self._decide, lambda _outcomes, _failure: None)
        self._wait()

    def _decide(self) -> list[Change]:
        cluster = self._controller.cluster
        elected = imbalanced(cluster, MOST_IMBALANCE_PERCENT)
        if elected:
            count = sum(map(len, elected.values()))
            events.info("preferred leaders lead again", partitions=count)
        return [stamped(cluster, elected)] if elected else []

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
