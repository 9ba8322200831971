"""The topics this broker knows, by name and by id, each with its partitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from ottla.replica.partition import Partition


@dataclasses.dataclass(slots=True)
class Topic:
    name: str
    topic_id: bytes
    partitions: list[Partition]
    overrides: dict[str, str]  # the configurations set for this topic, as they were written

    @property
    def partition_count(self) -> int:
        return len(self.partitions)


class Topics:
    def __init__(self) -> None:
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
        return _partition_of(self.by_name.get(name), index)

    def is_known(self, key: tuple[str | bytes, int]) -> bool:
        """Whether there is a partition, of a topic that is named or whose id is given."""
        topic, index = key
        found = self.partition(topic, index) if isinstance(topic, str) else self.partition_by_id(topic, index)
        return found is not None

    def name_of(self, topic_id: bytes) -> str:
        """Empty where there is no such topic."""
        topic = self.by_id.get(topic_id)
        return "" if topic is None else topic.name

    def partition_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        return _partition_of(self.by_id.get(topic_id), index)


def _partition_of(topic: Topic | None, index: int) -> Partition | None:
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    return topic.partitions[index]
