"""The world of the worst requests in a simulation, in which every step of a request is a round of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.loop import slices
from ottla.testing.simulated_client import SimulatedClient
from ottla.wire.schema import Request
from tests.limits.world import Load, World
from tests.sim.simulated_broker import SimulatedBroker

TINY = Load(topics=4, partitions=6, groups=3, elements=24)


class SimulatedWorld(World):
    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.load = TINY
        self.simulated = SimulatedBroker(folder, group_initial_rebalance_delay_ms="0")
        self._number = 0
        self._client = self.simulated.client()
        self.names = [f"topic-{number}" for number in range(TINY.topics)]
        self.groups = [f"group-{number}" for number in range(TINY.groups)]
        self.fill()
        patch.setattr(slices, "AT_ONCE_SECONDS", -1.0)
        patch.setattr(slices, "MOST_STEPS", 1)

    def ask(self, request: Request, version: int | None = None) -> Any:
        try:
            return self._client.ask(request, version)
        except TimeoutError:
            if not self._client.is_closed:
                raise
            self._client = self.client()
            return None

    def client(self) -> SimulatedClient:
        return self.simulated.client()

    def longest_round(self) -> float:
        """Nobody measures here."""
        return 0.0
