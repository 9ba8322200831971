"""Reading topics as they grow: what the driver of a streaming query asks, batch after batch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ottla.client import LATEST, ClientError, Offset, PartlyFailed, ServerError, Topic, TopicPartition
from ottla.pipelines.byte_limit import ByteLimit
from ottla.pipelines.catalog import Catalog, topic_id_text
from ottla.pipelines.data_loss import LOGGER, report_loss
from ottla.pipelines.offset_range import OffsetRange, split
from ottla.pipelines.range_reader import read_range
from ottla.pipelines.rate_limit import limit_offsets
from ottla.pipelines.source_options import SourceOptions
from ottla.pipelines.stream_offsets import StreamOffsets
from ottla.records.growth import held_back

if TYPE_CHECKING:
    import pyarrow as pa

Json = dict[str, Any]
NOT_READ = 1 << 62
"""How far a parent is that the query does not read: nothing is to be waited for."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A partition that appears while the query runs is read from its first record on."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._catalog = Catalog(options)
        most_bytes = options.bytes_per_trigger
        self._byte_limit: ByteLimit | None = None
        if most_bytes is not None:
            self._byte_limit = ByteLimit(options.cluster, options.isolation, most_bytes, options.poll_timeout_ms)
        self._last_end: StreamOffsets | None = None
        """Where Trigger.AvailableNow stops."""
        self._last_batch_at = time.monotonic()
        self._published: dict[TopicPartition, int] = {}
        self._open: dict[str, tuple[str, int]] = {}
        """Topics of which nothing is held back: their ids, and how many partitions they had then."""

    # What Spark asks on the driver.

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        topics = self._catalog.topics()
        starts = self._catalog.resolve(self._options.start, self._catalog.places(topics), "startingOffsets")
        return StreamOffsets(starts, _ids(topics)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most, most_bytes = self._options.offsets_per_trigger, self._options.bytes_per_trigger
        if most is not None:
            return ReadMaxRows(most)  # with the bytes, if both are limited
        return ReadAllAvailable() if most_bytes is None else ReadMaxBytes(most_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._last_end = self._now()

    def reportLatestOffset(self) -> Json:  # noqa: N802
        return self._now().to_json()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        begun = StreamOffsets.of_json(start)
        self._publish(begun.offsets)
        available = self._now() if self._last_end is None else self._last_end
        ends = self._checked(begun, available)
        starts = self._starts(begun, ends)
        self._hold_back(starts, ends)
        if self._is_too_little(starts, ends):
            return start
        if isinstance(limit, ReadMaxRows):
            ends.offsets = limit_offsets(starts, ends.offsets, limit.max_rows)
        if self._byte_limit is not None and not isinstance(limit, ReadAllAvailable):
            ends.offsets = self._byte_limit.limited(starts, ends.offsets)
        if ends.offsets != begun.offsets:
            self._last_batch_at = time.monotonic()
        return ends.to_json()

    def partitions(self, start: Json, end: Json) -> list[OffsetRange]:
        begun, ended = StreamOffsets.of_json(start), StreamOffsets.of_json(end)
        starts = self._starts(begun, ended)
        ranges = [
            OffsetRange(place.topic, ended.topic_ids[place.topic], place.partition, starts[place], offset)
            for place, offset in ended.offsets.items()
        ]
        return split(ranges, self._options.least_partitions, self._options.records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetRange)
        return read_range(self._options, partition)

    def commit(self, end: Json) -> None:
        self._publish(StreamOffsets.of_json(end).offsets)

    def stop(self) -> None:
        self._catalog.close()
        if self._byte_limit is not None:
            self._byte_limit.close()

    # How it is found.

    def _now(self) -> StreamOffsets:
        """The ends of all that is subscribed to, as it is now."""
        gone: list[str] = []
        while True:
            try:
                topics = self._catalog.topics(without=gone)
                return StreamOffsets(self._catalog.find(LATEST, self._catalog.places(topics)), _ids(topics))
            except (ServerError, PartlyFailed) as error:
                missing = _missing_topics(error)
                if not missing or not missing.isdisjoint(gone):
                    raise
                for topic in sorted(missing):
                    report_loss(f"topic {topic} is not there any more", fails=self._options.fails_on_data_loss)
                gone += missing

    def _checked(self, begun: StreamOffsets, available: StreamOffsets) -> StreamOffsets:
        """What is available, and that nothing of what was read before has gone."""
        ends = StreamOffsets(dict(available.offsets), {**begun.topic_ids, **available.topic_ids})
        fails = self._options.fails_on_data_loss
        for topic, topic_id in begun.topic_ids.items():
            if ends.topic_ids[topic] != topic_id:
                report_loss(f"topic {topic} was deleted and created again", fails=fails)
        for place, offset in begun.offsets.items():
            if begun.topic_ids.get(place.topic) not in (None, ends.topic_ids.get(place.topic)):
                continue  # the topic of that name is another one now, perhaps without this partition
            end = ends.offsets.get(place)
            if end is not None and end >= offset:
                continue
            if self._last_end is not None and self._is_there(place, offset):
                ends.offsets[place] = offset  # it has come since the query began, as for a batch that is repeated
            elif end is None:
                report_loss(f"{place} is not there any more", fails=fails)
                ends.offsets[place] = offset
            else:
                report_loss(f"{place} ends at offset {end}, and was read up to {offset} before", fails=fails)
        return ends

    def _is_there(self, place: TopicPartition, offset: int) -> bool:
        """Whether a partition goes as far now."""
        return self._now().offsets.get(place, -1) >= offset

    def _hold_back(self, starts: Mapping[TopicPartition, int], ends: StreamOffsets) -> None:
        """Leave new partitions of topics that have grown in order until a batch before has read their parents.

        The partitions of one batch are read side by side, so a parent and what follows it must not be in the same.
        """
        counts = Counter(place.topic for place in starts)
        now = {topic: (ends.topic_ids.get(topic, ""), count) for topic, count in counts.items()}
        unknown = {place.topic for place, end in ends.offsets.items() if end > starts[place]}
        unknown = {topic for topic in unknown if self._open.get(topic) != now[topic]}
        for topic, growths in self._catalog.growths(sorted(unknown)).items():
            assigned = {place.partition: offset for place, offset in starts.items() if place.topic == topic}
            held = held_back(growths, lambda parent: assigned.get(parent, NOT_READ))  # noqa: B023 - called at once
            if not held:
                self._open[topic] = now[topic]
            for index in held:
                place = TopicPartition(topic, index)
                if place in ends.offsets:
                    ends.offsets[place] = starts[place]

    def _starts(self, begun: StreamOffsets, ended: StreamOffsets) -> dict[TopicPartition, int]:
        """Where each partition goes on. A new one, and one of a topic that was created again, begins at 0."""
        return {
            place: begun.offsets.get(place, 0)
            if begun.topic_ids.get(place.topic) in (None, ended.topic_ids.get(place.topic))
            else 0
            for place in ended.offsets
        }

    def _is_too_little(self, starts: Mapping[TopicPartition, int], ends: StreamOffsets) -> bool:
        least = self._options.least_offsets_per_trigger
        if least is None or self._last_end is not None:
            return False
        count = sum(max(0, offset - starts[place]) for place, offset in ends.offsets.items())
        waited_ms = (time.monotonic() - self._last_batch_at) * 1000
        return count < least and waited_ms < self._options.trigger_delay_ms

    def _publish(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Progress for those who look at groups. The query does not depend on it, so it does not fail with it."""
        group_id = self._options.group_id
        changed = {place: offset for place, offset in offsets.items() if self._published.get(place) != offset}
        if group_id is None or not changed:
            return
        try:
            self._catalog.admin.alter_group_offsets(group_id, {place: Offset(at) for place, at in changed.items()})
        except ClientError as error:
            LOGGER.warning("the offsets of group %s could not be published: %s", group_id, error)
        else:
            self._published.update(changed)


def _missing_topics(error: ServerError | PartlyFailed) -> set[str]:
    """Those that are not there, if nothing else is wrong."""
    errors = error.errors if isinstance(error, PartlyFailed) else [error]
    topics = {one.topic for one in errors if one.name == "UNKNOWN_TOPIC_OR_PARTITION" and one.topic is not None}
    return topics if len(topics) == len(errors) else set()


def _ids(topics: Mapping[str, Topic]) -> dict[str, str]:
    return {name: topic_id_text(topic.topic_id) for name, topic in topics.items()}
