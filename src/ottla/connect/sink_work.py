"""One task of a sink at work: a member of the connector's group that gives what it reads to the sink."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

from ottla.client import (
    EARLIEST,
    LATEST,
    Admin,
    ClientError,
    ClientOptions,
    Consumer,
    Fetched,
    Message,
    Producer,
    TopicPartition,
)
from ottla.connect.configuration import ConnectorConfiguration
from ottla.connect.dead_letters import of_sink
from ottla.connect.interface import BadRecord, ConnectorRefused, Sink, SinkBatch, Task
from ottla.connect.metrics import TaskMetrics
from ottla.connect.positions import group_of

POLL_MS = 500
COMMIT_SECONDS = 2.0
NOT_STORED = -1
PIECE_RECORDS = 100
"""In how large pieces the records go to the sink that came together with a bad one."""


class SinkWork:
    def __init__(
        self, bootstrap: str, options: ClientOptions, configuration: ConnectorConfiguration, session_timeout_ms: int,
        metrics: TaskMetrics, progressed: Callable[[], None],
    ) -> None:  # fmt: skip
        self._bootstrap = bootstrap
        self._options = options
        self._configuration = configuration
        self._session_timeout_ms = session_timeout_ms
        self._metrics = metrics
        self._progressed = progressed
        self._stored: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._letters: Producer | None = None
        self.partitions: list[str] = []
        """What it reads at the moment, for its status."""

    def make_task(self, number: int, count: int) -> Task:
        return Task(self._configuration.name, number, count, count_partitions=self._count_partitions)

    def _count_partitions(self, topic: str) -> int:
        with Admin(self._bootstrap, self._options) as admin:
            return len(admin.describe_topics([topic])[0].partitions)

    def run(self, task: Task) -> None:
        """Until it is told to stop, or something fails."""
        sink: Sink = self._configuration.make()
        common = self._configuration.common
        try:
            sink.open(task)
            with Consumer(
                self._bootstrap,
                common.topics or None,
                pattern=common.topics_pattern,
                group=group_of(task.connector),
                auto_commit=False,
                start=EARLIEST,
                session_timeout_ms=self._session_timeout_ms,
                heartbeat_ms=max(self._session_timeout_ms // 4, 1),
                on_assigned=lambda places: self._take(sink, consumer, places),
                on_revoked=lambda places: self._give_up(sink, consumer, places),
                on_lost=lambda places: self._lose(places),
                options=self._options,
            ) as consumer:
                self._read(sink, consumer, task)
        finally:
            self.partitions = []
            sink.close()
            if self._letters is not None:
                self._letters.close(5)
                self._letters = None

    def _read(self, sink: Sink, consumer: Consumer, task: Task) -> None:
        committed_at = time.monotonic()
        while not task.is_stopping:
            for fetched in consumer.poll(POLL_MS):
                self._write(sink, fetched)
                if task.is_stopping:
                    break
            now = time.monotonic()
            # Where the sink has the offsets, those of the group are for `status` and the like.
            if self._done and (not sink.stores_offsets or now - committed_at > COMMIT_SECONDS):
                self._commit(sink, consumer)
                committed_at = now
        self._commit(sink, consumer)

    def _commit(self, sink: Sink, consumer: Consumer) -> None:
        if not self._done:
            return
        done, self._done = self._done, {}
        if sink.stores_offsets:
            with contextlib.suppress(ClientError):
                consumer.commit(done)
        else:
            consumer.commit(done)

    # What the group says.

    def _take(self, sink: Sink, consumer: Consumer, places: list[TopicPartition]) -> None:
        stored: Mapping[TopicPartition, int] = sink.stored_offsets(places) if sink.stores_offsets else {}
        if sink.stores_offsets:
            self._learn_topic_ids(places)
            self._check_same(sink.stored_topic_ids(places))
        self._check_kept(stored)
        for place in places:
            self._stored[place] = stored.get(place, NOT_STORED)
            if place in stored:
                consumer.seek(place, stored[place])
            elif sink.stores_offsets:
                # Nothing of it is in the store, whatever the group has committed.
                consumer.seek(place, EARLIEST)
        self.partitions = sorted(map(str, self._stored))

    def _learn_topic_ids(self, places: list[TopicPartition]) -> None:
        names = sorted({place.topic for place in places})
        with Admin(self._bootstrap, self._options) as admin:
            for topic in admin.describe_topics(names) if names else ():
                self._topic_ids[topic.name] = topic.topic_id.hex() if topic.has_id else ""

    def _check_same(self, stored: Mapping[TopicPartition, str]) -> None:
        for place, topic_id in stored.items():
            if topic_id and self._topic_ids[place.topic] not in ("", topic_id):
                raise _recreated(place.topic)

    def _check_kept(self, stored: Mapping[TopicPartition, int]) -> None:
        """That nothing is missing which comes behind what is stored."""
        if not stored:
            return
        with Admin(self._bootstrap, self._options) as admin:
            for place, offset in stored.items():
                first = admin.find_offsets(place.topic, EARLIEST, [place.partition])[place.partition]
                if first > offset:
                    raise _lost(place, offset, first)
                end = admin.find_offsets(place.topic, LATEST, [place.partition])[place.partition]
                if end < offset:
                    raise _cut(place, offset, end)

    def _check_gap(self, place: TopicPartition, stored: int, found: int) -> None:
        """Records begin behind where they should: by compaction and ends of transactions, or was retention faster?"""
        with Admin(self._bootstrap, self._options) as admin:
            first = admin.find_offsets(place.topic, EARLIEST, [place.partition])[place.partition]
        if stored < first <= found:  # what lies before the first offset was fetched while it was there
            raise _lost(place, stored, first)

    def _give_up(self, sink: Sink, consumer: Consumer, places: list[TopicPartition]) -> None:
        done = {place: self._done.pop(place) for place in places if place in self._done}
        if done:
            with contextlib.suppress(ClientError):
                consumer.commit(done)
        self._lose(places)

    def _lose(self, places: list[TopicPartition]) -> None:
        for place in places:
            self._stored.pop(place, None)
            self._done.pop(place, None)
        self.partitions = sorted(map(str, self._stored))

    # Records.

    def _write(self, sink: Sink, fetched: Fetched) -> None:
        place = TopicPartition(fetched.topic, fetched.partition)
        start_offset = self._stored.get(place)
        if start_offset is None:  # taken away meanwhile
            return
        records = [Message(fetched.topic, fetched.partition, record) for record in fetched.records]
        found = records[0].offset if records else fetched.next_offset
        if found < start_offset:
            raise _recreated(place.topic)
        if NOT_STORED < start_offset < found:
            self._check_gap(place, start_offset, found)
        topic_id = self._topic_ids.get(place.topic, "")
        pieces = [records]
        while pieces:
            piece = pieces.pop(0)
            next_offset = pieces[0][0].offset if pieces else fetched.next_offset
            try:
                sink.write(SinkBatch(*place, piece, start_offset, next_offset, topic_id))
            except BadRecord as bad:
                # For each bad record, all that are with it are tried again: where there is one, there may be many.
                sound = self._bury(piece, bad)
                pieces[:0] = [sound[at : at + PIECE_RECORDS] for at in range(0, len(sound), PIECE_RECORDS)] or [[]]
                continue
            self._stored[place] = self._done[place] = start_offset = next_offset
        size_bytes = sum(len(record.value or b"") + len(record.key or b"") for record in fetched.records)
        self._metrics.add(len(fetched.records), size_bytes, time.monotonic())
        self._progressed()

    def _bury(self, records: list[Message], bad: BadRecord) -> list[Message]:
        """The letter is written before the batch: it may come twice, and is never missing."""
        found = [record for record in records if record.offset == bad.offset]
        topic = self._configuration.common.dead_letter
        if topic is None or not found:
            place = f"{records[0].topic}-{records[0].partition} at offset {bad.offset}: " if records else ""
            raise ConnectorRefused(
                f"{place}{bad}; with dead_letter = TOPIC such records are kept there, and the others go on"
            )
        if self._letters is None:
            self._letters = Producer(self._bootstrap, linger_ms=0, options=self._options)
            self._letters.open()
        self._letters.send_many(topic, [of_sink(self._configuration.name, found[0], bad)])
        self._metrics.dead_letters += 1
        return [record for record in records if record.offset != bad.offset]


def _recreated(topic: str) -> ConnectorRefused:
    return ConnectorRefused(
        f"topic {topic} was deleted and created again, or has lost records: the stored offsets are of what was there "
        "before; 'ottla connect reset' begins with what is there now"
    )


def _cut(place: TopicPartition, offset: int, end: int) -> ConnectorRefused:
    return ConnectorRefused(
        f"{place} ends at {end}, before offset {offset}, up to which it was read: it was deleted and created again, or "
        "has lost records; 'ottla connect reset' begins with what is there now"
    )


def _lost(place: TopicPartition, offset: int, first: int) -> ConnectorRefused:
    return ConnectorRefused(
        f"{place}: the records from offset {offset} to {first} were deleted before they were read; to go on without "
        "them, 'ottla connect reset' and start anew, or restore the topic"
    )
