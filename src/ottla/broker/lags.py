"""How far groups are behind: in records that they would really get, by partition.

Each count is kept and moved on from look to look, so that a page of metrics does not read the logs anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.visible import VisibleCount
from ottla.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.replica.partition import Partition


class Lag(NamedTuple):
    group: str
    topic: str
    partition: int
    committed_offset: int
    end_offset: int  # the last stable one: what is behind it can still be aborted
    records: int


class Lags:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._counts: dict[tuple[str, str, int], tuple[Partition, VisibleCount]] = {}

    def all(self) -> list[Lag]:
        """Of every group that has committed offsets for topics that are there."""
        lags = list(self._of_groups(None))
        known = {lag[:3] for lag in lags}
        self._counts = {key: count for key, count in self._counts.items() if key in known}
        return lags

    def of_group(self, group_id: str) -> list[Lag]:
        return list(self._of_groups(group_id))

    def _of_groups(self, only: str | None) -> Iterator[Lag]:
        for shard in self._broker.groups.shards():
            offsets = shard.machine.offsets
            for group_id in offsets.groups() if only is None else [only]:
                for (topic, index), committed in offsets.of_group(group_id).items():
                    partition = self._broker.topics.partition(topic, index)
                    if partition is not None and committed.value.topic_id in (ZERO_UUID, partition.topic_id):
                        yield self._lag(group_id, partition, committed.value.offset)

    def _lag(self, group_id: str, partition: Partition, committed_offset: int) -> Lag:
        key = group_id, partition.topic, partition.index
        known = self._counts.get(key)
        if known is None or known[0] is not partition:  # new, or the topic was made again
            known = self._counts[key] = partition, VisibleCount(partition.log)
        end_offset = partition.log.last_stable_offset
        records = known[1].between(committed_offset, end_offset)
        return Lag(*key, committed_offset, end_offset, records)
