"""The cluster as the driver of a query asks for it: which partitions there are, and which offsets they have."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ottla.client import EARLIEST, LATEST, Admin, AtTime, Position, ServerError, Topic, TopicPartition
from ottla.pipelines.options import OptionError
from ottla.pipelines.source_options import ByTime, Edge, SourceOptions
from ottla.records.growth import Growth


class Catalog:
    """Connects when it is first asked. What is sent to the workers of it are its options alone."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._admin: Admin | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_admin": None}

    @property
    def admin(self) -> Admin:
        if self._admin is None:
            self._admin = self._options.cluster.admin()
            try:
                self._admin.__enter__()
            except BaseException:
                self._admin = None
                raise
        return self._admin

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def topics(self, without: Collection[str] = ()) -> dict[str, Topic]:
        """Those that are subscribed to, as they are now, but for some that are known to be gone."""
        wanted = self._options.subscription
        if wanted.pattern is not None:
            found = (topic for topic in self.admin.list_topics() if not topic.is_internal)
            return {topic.name: topic for topic in found if wanted.takes(topic.name)}
        names = [name for name in wanted.topics or sorted(wanted.assigned or ()) if name not in without]
        return {topic.name: topic for topic in self.admin.describe_topics(names)} if names else {}

    def places(self, topics: Mapping[str, Topic]) -> list[TopicPartition]:
        """The partitions to read: all of the topics, or those that were assigned."""
        assigned = self._options.subscription.assigned
        places = []
        for name, topic in topics.items():
            indexes = range(len(topic.partitions)) if assigned is None else assigned[name]
            if indexes and indexes[-1] >= len(topic.partitions):
                raise OptionError(f"option assign: topic {name} has no partition {indexes[-1]}")
            places += [TopicPartition(name, index) for index in indexes]
        return places

    def find(self, position: Position, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for topic, index in places:
            by_topic[topic].append(index)
        return {
            TopicPartition(topic, index): offset
            for topic, indexes in by_topic.items()
            for index, offset in self.admin.find_offsets(topic, position, indexes, self._options.isolation).items()
        }

    def growths(self, topics: Sequence[str]) -> dict[str, tuple[Growth, ...]]:
        """How topics have grown in order; those that are gone meanwhile are left out."""
        if not topics:
            return {}
        try:
            return self.admin.describe_growths(topics)
        except ServerError as error:
            if error.topic is None or error.name != "UNKNOWN_TOPIC_OR_PARTITION":
                raise
            return self.growths([topic for topic in topics if topic != error.topic])

    def resolve(self, edge: Edge, places: list[TopicPartition], name: str) -> dict[TopicPartition, int]:
        """The offsets of an edge. `name` is the option that it comes from."""
        if isinstance(edge, ByTime):
            return self._resolve_times(edge, places, name)
        if not isinstance(edge, Mapping):
            return self.find(edge, places)
        _check_same(edge, places, name)
        return self._find_each(edge)

    def _find_each(self, positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, int]:
        alike: defaultdict[Position, list[TopicPartition]] = defaultdict(list)
        found: dict[TopicPartition, int] = {}
        for place, position in positions.items():
            if isinstance(position, int):
                found[place] = position
            else:
                alike[position].append(place)
        for position, those in alike.items():
            found |= self.find(position, those)
        return found

    def _resolve_times(self, edge: ByTime, places: list[TopicPartition], name: str) -> dict[TopicPartition, int]:
        times = edge.times_ms
        if isinstance(times, int):
            times = dict.fromkeys(places, times)
        else:
            _check_same(times, places, name)
        found = self._find_each({place: AtTime(time_ms) for place, time_ms in times.items()})
        if edge.is_strict:
            ends = self.find(LATEST, places)
            late = [place for place in places if found[place] >= ends[place]]
            if late:
                raise OptionError(
                    f"{late[0]} has no record from the time {times[late[0]]} on; to begin at its end, set option "
                    "startingOffsetsByTimestampStrategy to latest"
                )
        return found

    def edges(self, places: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """The first offset of each partition and its end."""
        firsts, ends = self.find(EARLIEST, places), self.find(LATEST, places)
        return {place: (firsts[place], ends[place]) for place in places}


def topic_id_text(topic_id: bytes) -> str:
    """As Kafka's tools print it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _check_same(given: Iterable[TopicPartition], places: list[TopicPartition], name: str) -> None:
    missing, unknown = set(places) - set(given), set(given) - set(places)
    if missing or unknown:
        what = f"says nothing of {min(missing)}" if missing else f"names {min(unknown)}, which is not read"
        raise OptionError(f"option {name} {what}: it takes exactly the partitions that are read")
