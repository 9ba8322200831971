"""Which partitions a plain reader leaves for later, where their topic has grown in order."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ottla.client.admin.growth import find_growths
from ottla.client.network.cluster import Cluster
from ottla.records.growth import Growth, held_back

LOOK_AGAIN_SECONDS = 1.0
NOT_READ = 1 << 62
"""How far a parent is that is not read at all: nothing is to be waited for."""


class GrowthOrder:
    """Made when reading begins. While a partition is held back it looks now and then whether it still has to be."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._growths: tuple[Growth, ...] | None = None
        self._looked_at = 0.0

    async def held(self, offsets: Mapping[int, int]) -> set[int]:
        """`offsets`: up to where each partition was given out."""
        if self._growths is None:
            await self._look()
        held = self._held(offsets)
        if held and time.monotonic() - self._looked_at > LOOK_AGAIN_SECONDS:
            await self._look()
            held = self._held(offsets)
        return held

    def _held(self, offsets: Mapping[int, int]) -> set[int]:
        return set(held_back(self._growths or (), lambda index: offsets.get(index, NOT_READ)))

    async def _look(self) -> None:
        self._growths = (await find_growths(self._cluster, [self._topic]))[self._topic]
        self._looked_at = time.monotonic()
