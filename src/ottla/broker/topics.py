"""The topics this broker knows, by name and by id, each with its partitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from ottla.records.growth import Growths, Phase, is_checked
from ottla.records.placement import Placement
from ottla.replica.partition import Partition
from ottla.replica.shell import Shell
from ottla.wire.errors import ErrorCode


@dataclasses.dataclass(slots=True)
class Topic:
    name: str
    topic_id: bytes
    assignment: list[list[int]]  # the brokers of each of its partitions
    replicas: dict[int, Partition]  # those that this broker has, by index
    overrides: dict[str, str]  # the configurations set for this topic, as they were written
    growths: Growths = ()  # the partitions that were added in order

    def grow(self, growths: Growths) -> None:
        """Go by what is known of how the topic has grown: its partitions ask of keys what follows from that."""
        self.growths = growths
        for index, partition in self.replicas.items():
            placement = self._placement(index)
            before = partition.log.placement
            if placement is None and before is not None:
                partition.log.place(None)
            elif placement is not None and not placement.is_like(before):
                partition.writer.write_gathered()  # it came before
                partition.log.place(placement)

    def _placement(self, index: int) -> Placement | None:
        if not is_checked(self.growths, self.partition_count):
            return None
        growth = self.growths[-1]
        required: int | None = growth.total
        if growth.phase in (Phase.PREPARING, Phase.DRAINING):  # what was asked before still is
            required = growth.first if is_checked(self.growths[:-1], growth.first) else None
        return Placement(index, growth.total, growth.partitioner, required_count=required)

    @property
    def partition_count(self) -> int:
        """Of all its partitions, wherever they are."""
        return len(self.assignment)

    @property
    def partitions(self) -> list[Partition]:
        """Those that this broker has."""
        return list(self.replicas.values())


class Topics:
    def __init__(self, shell: Shell) -> None:
        self.shell = shell  # of their partitions
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self._watchers: list[Callable[[str], None]] = []

    def watch(self, callback: Callable[[str], None]) -> None:
        """Call back with the name of each topic that comes, goes or gets more partitions."""
        self._watchers.append(callback)

    def changed(self, name: str) -> None:
        for callback in self._watchers:
            callback(name)

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    def add(self, topic: Topic) -> None:
        self.by_name[topic.name] = topic
        self.by_id[topic.topic_id] = topic
        self.changed(topic.name)

    def remove(self, name: str) -> Topic:
        topic = self.by_name.pop(name)
        del self.by_id[topic.topic_id]
        self.changed(name)
        return topic

    def partition(self, name: str, index: int) -> Partition | None:
        """The replica that this broker has; None if it has none."""
        topic = self.by_name.get(name)
        return None if topic is None else topic.replicas.get(index)

    def find(self, key: tuple[str | bytes, int]) -> Partition | None:
        """A partition of a topic that is named or whose id is given."""
        topic, index = key
        return self.partition(topic, index) if isinstance(topic, str) else self.partition_by_id(topic, index)

    def is_known(self, key: tuple[str | bytes, int]) -> bool:
        return self.find(key) is not None

    def name_of(self, topic_id: bytes) -> str:
        """Empty where there is no such topic."""
        topic = self.by_id.get(topic_id)
        return "" if topic is None else topic.name

    def partition_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.replicas.get(index)

    def has_partition(self, topic: str | bytes, index: int) -> bool:
        """Whether there is such a partition, here or elsewhere."""
        found = self.by_name.get(topic) if isinstance(topic, str) else self.by_id.get(topic)
        return found is not None and 0 <= index < found.partition_count

    def missing_code(self, topic: str | bytes, index: int) -> ErrorCode:
        """Why a partition that this broker does not have is not served here."""
        if self.has_partition(topic, index):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        is_known = topic in self.by_name if isinstance(topic, str) else topic in self.by_id
        if isinstance(topic, bytes) and not is_known:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
