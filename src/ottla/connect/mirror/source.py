"""The mirror as a source of ottla.connect: reads batches in one cluster, which are written in the other as they are.

Each task has the partitions whose hash falls on its number. What it has read, and where its copies lie, is its position
(progress.py), committed with the copies.
"""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from ottla.client import (
    EARLIEST,
    LATEST,
    Admin,
    BatchReader,
    ClientError,
    ClientOptions,
    FetchedData,
    Isolation,
    LogTruncated,
    MalformedAnswer,
    Offset,
    ServerError,
    Topic,
    TopicPartition,
    TopicRecreated,
)
from ottla.client.network.address import parse_addresses
from ottla.connect.interface import ConnectorRefused, Finding, Source, SourceBatch, Task, Yielded
from ottla.connect.mirror.groups import MirroredGroups
from ottla.connect.mirror.origins import Origin, Origins
from ottla.connect.mirror.progress import PartitionProgress, Progress, Run, TopicProgress
from ottla.connect.mirror.topics import CopiedTopics, Pair, TopicChoice
from ottla.connect.topics import check_topic_name
from ottla.records.batch import BatchHeader, read_header
from ottla.records.build import build_batch, may_be_copied
from ottla.records.read import Batch

OPTIONS = ClientOptions(client_id="ottla-mirror")
POLL_MS = 200
MOST_REFRESH_SECONDS = 86_400
LEFT_OUT = "left out, for they are copies of topics of the target"


class MirrorSource(Source):
    def __init__(
        self, source: str, target: str, topics: list[str], *, exclude: list[str] | None = None, prefix: str = "",
        groups: list[str] | None = None, start: Literal["earliest", "latest"] = "earliest",
        existing: Literal["refuse", "append"] = "refuse", lost: Literal["refuse", "skip"] = "refuse",
        refresh_seconds: float = 5.0, read_uncommitted: bool = False,
    ) -> None:  # fmt: skip
        """ValueError for settings that cannot be."""
        if not topics:
            raise ValueError('topics is missing: topics = ["NAME", "PATTERN.*"]')
        if not 0 < refresh_seconds <= MOST_REFRESH_SECONDS:
            raise ValueError(f"refresh_seconds is above 0 and at most {MOST_REFRESH_SECONDS:,}, not {refresh_seconds}")
        for side, bootstrap in (("source", source), ("target", target)):
            try:
                parse_addresses(bootstrap)
            except ValueError as error:
                raise ValueError(f"{side}: {error}") from None
        if prefix:
            check_topic_name("prefix", prefix)
        self.source, self.target = source, target
        self.choice = TopicChoice(topics, exclude or [], prefix)
        self.groups = groups or []
        MirroredGroups.check(self.groups)
        self.start, self.existing, self.lost = start, existing, lost
        self.refresh_seconds = refresh_seconds
        self.isolation = Isolation.READ_UNCOMMITTED if read_uncommitted else Isolation.READ_COMMITTED
        self._copying: Copying | None = None

    def check(self) -> Iterable[Finding]:
        quick = OPTIONS._replace(retry_timeout_ms=5_000)
        with contextlib.ExitStack() as stack:
            admins = []
            for side, bootstrap in (("source", self.source), ("target", self.target)):
                try:
                    admins.append(stack.enter_context(Admin(bootstrap, quick)))
                except ClientError as error:
                    yield Finding(f"the {side} {bootstrap} cannot be reached: {error}", is_problem=True)
                    return
            source, target = admins
            if _cluster_id(source) == _cluster_id(target):
                yield Finding(SAME_CLUSTER, is_problem=True)
                return
            chosen = CopiedTopics(source, target, self.choice).chosen(source.list_topics())
            origins = Origins(self.source, quick).read()
            there = {topic.name for topic in target.list_topics()}
            cluster_id = _cluster_id(target)
            for topic in chosen:
                if topic.name in origins and cluster_id in origins[topic.name].clusters:
                    yield Finding(f"{topic.name} is {LEFT_OUT}")
                else:
                    name = self.choice.target(topic.name)
                    state = "exists" if name in there else "is made"
                    yield Finding(f"{topic.name}: {len(topic.partitions)} partitions; {name} {state} on the target")
            if not chosen:
                yield Finding("no topic of the source is chosen")

    def read(self, task: Task, position: Any) -> Iterator[Yielded]:
        with (
            Admin(self.source, OPTIONS) as source,
            Admin(self.target, OPTIONS) as target,
            BatchReader(self.source, isolation=self.isolation, options=OPTIONS) as reader,
        ):
            copying = Copying(self, task, source, target, reader, position)
            self._copying = copying
            while True:
                batches = copying.step()
                yield (batches, copying.progress.document()) if batches is not None else None

    def forget(self, connector: str) -> None:
        """What this mirror has copied is nobody's copy any more, and not copied to again without a word."""
        origins = Origins(self.target, OPTIONS)
        origins.write({name: None for name, origin in origins.read().items() if origin.mirror == connector})

    def placed(self, _position: Any, batches: Sequence[tuple[SourceBatch, int]]) -> Any:
        assert self._copying is not None
        progress = self._copying.progress
        for batch, offset in batches:
            topic, index, start, count = batch.token
            progress.topics[topic].partitions[index].copied(Run(start, offset, count))
        self._copying.has_written = True
        return progress.document()


SAME_CLUSTER = "source and target are one cluster: a copy there has to have another name, and is no mirror"


def _cluster_id(admin: Admin) -> str:
    return admin.describe_cluster().cluster_id


class Copying:
    """One task at work."""

    def __init__(
        self, mirror: MirrorSource, task: Task, source: Admin, target: Admin, reader: BatchReader, position: Any
    ) -> None:
        self._mirror = mirror
        self._task = task
        self._source = source
        self._target = target
        self._reader = reader
        self._topics = CopiedTopics(source, target, mirror.choice)
        self._groups = MirroredGroups(source, target, mirror.groups, f"mirror-{task.connector}")
        self._source_id, self._target_id = _cluster_id(source), _cluster_id(target)
        if self._source_id == self._target_id:
            raise ConnectorRefused(SAME_CLUSTER)
        self.progress = Progress(self._source_id) if position is None else Progress.read(position)
        if self.progress.cluster_id != self._source_id:
            raise ConnectorRefused(
                f"the source is another cluster ({self._source_id}) than the one that was copied so far "
                f"({self.progress.cluster_id}); 'ottla mirror reset' begins anew"
            )
        self._refresh_due = 0.0
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._assigned: set[TopicPartition] = set()
        self._compacted: set[str] = set()
        self._failure: Exception | None = None
        """What comes next: it was met while reading, and what is before it is handed on."""
        self.has_written = False
        """Since this task was started."""

    def step(self) -> list[SourceBatch] | None:
        """What is to be written next; None if there is nothing at the moment."""
        if time.monotonic() >= self._refresh_due:
            self._refresh()
            self._refresh_due = time.monotonic() + self._mirror.refresh_seconds
            if self._task.is_commit_wanted:
                return []
        if self._failure is not None:
            raise self._failure
        try:
            fetched = self._reader.poll(POLL_MS)
        except TopicRecreated as error:
            raise _recreated(error.topic or "", "source") from None
        except LogTruncated as error:
            raise ConnectorRefused(
                f"{error.topic}-{error.partition}: the source has lost records that the target has, from offset "
                f"{error.offset} on, and may have others in their place; 'ottla mirror forget' lets it be copied anew"
            ) from None
        except ServerError as error:
            self._recover(error)
            return None
        if not fetched:
            self._task.lag_seconds = 0.0 if not self._behind() else self._task.lag_seconds
            return None
        batches: list[SourceBatch] = []
        for data in fetched:
            self._high_watermarks[TopicPartition(data.topic, data.partition)] = data.high_watermark
            try:
                self._take_fetched(data, batches)
            except Exception as error:  # the progress tells of the batches so far, so they have to be written
                self._failure = error
                break
        self._tell_lag(batches)
        return batches

    def _take_fetched(self, data: FetchedData, batches: list[SourceBatch]) -> None:
        """What comes before damage and before a loss is taken. Where it fails, batches and progress agree."""
        partition = self.progress.topics[data.topic].partitions[data.partition]
        gap = data.gap if self._mirror.lost == "refuse" else None
        if gap is not None and self._is_compacted(data.topic):
            gap = None
        taken, before = len(batches), (partition.next_offset, partition.leader_epoch)
        try:
            for batch, header in self._batches(data):
                if gap is not None and header.base_offset >= gap[1]:
                    break
                before = partition.next_offset, partition.leader_epoch
                batches.append(batch)
                partition.next_offset, partition.leader_epoch = header.next_offset, header.leader_epoch
        except MalformedAnswer:
            if len(batches) > taken:
                self._leave_one(data.topic, partition, before, batches)
            raise
        if gap is not None:
            raise ConnectorRefused(
                f"{data.topic}-{data.partition}: the source has no offsets {gap[0]} to {gap[1] - 1}, and the topic is "
                'not compacted: records were lost before they were copied; with lost = "skip" it goes on behind them'
            )
        partition.next_offset = data.next_offset
        if data.epochs:
            partition.leader_epoch = data.epochs[-1][1]

    def _leave_one(
        self, topic: str, partition: PartitionProgress, before: tuple[int, int], batches: list[SourceBatch]
    ) -> None:
        """The last sound batch is for the next time where damage, fetched for itself, would look like compaction."""
        is_gap_told = False
        try:
            is_gap_told = not self._is_compacted(topic)
        finally:
            if not is_gap_told:
                partition.next_offset, partition.leader_epoch = before
                batches.pop()

    def _is_compacted(self, topic: str) -> bool:
        """Whether its offsets may have gaps. What was compacted once has them for good."""
        if topic not in self._compacted and self._topics.is_compacted(topic):
            self._compacted.add(topic)
        return topic in self._compacted

    def _tell_lag(self, batches: list[SourceBatch]) -> None:
        lag = 0.0
        if batches and self._behind():
            last = batches[-1].batch
            header = last.header if isinstance(last, Batch) else read_header(last)
            lag = time.time() - header.max_timestamp / 1000
        self._task.lag_seconds = max(lag, 0.0)

    def _batches(self, data: FetchedData) -> Iterator[tuple[SourceBatch, BatchHeader]]:
        place = TopicPartition(self.progress.topics[data.topic].target, data.partition)
        # The target looks at the checksums of batches that stay as they are. If it has refused one, all of its
        # transaction was refused: so they are looked at here until something is written, and the damage has its offset.
        for batch in data.visible(check_crc=not self.has_written):
            header = batch.header
            if header.base_offset >= data.fetch_offset and may_be_copied(header):
                token = (data.topic, data.partition, header.base_offset, header.count)
                yield SourceBatch(place, batch, header.count, token), header
                continue
            data.check(batch)
            records = batch.records(data.fetch_offset)
            if records:
                # Compaction has left gaps, or the time is the broker's: the records go on in a new batch.
                built = build_batch(
                    [record.value for record in records],
                    keys=[record.key for record in records],
                    timestamps=[record.timestamp for record in records],
                    headers=[record.headers for record in records],
                    timestamp=records[0].timestamp,
                    codec=header.codec,
                )
                is_whole = records[-1].offset - records[0].offset == len(records) - 1
                token = (data.topic, data.partition, records[0].offset, len(records) if is_whole else 1)
                yield SourceBatch(place, bytes(built), len(records), token), header

    def _behind(self) -> int:
        """How many offsets are not read yet, as far as the source has said."""
        return sum(
            max(high_watermark - self.progress.topics[place.topic].partitions[place.partition].next_offset, 0)
            for place, high_watermark in self._high_watermarks.items()
        )

    def _recover(self, error: ServerError) -> None:
        if error.topic is None or error.partition is None:
            raise error
        place = TopicPartition(error.topic, error.partition)
        if error.name == "UNKNOWN_TOPIC_OR_PARTITION":
            self._reader.drop([place])  # deleted, or about to be: the next refresh says so
            self._assigned.discard(place)
            self._high_watermarks.pop(place, None)
            return
        if error.name != "OFFSET_OUT_OF_RANGE":
            raise error
        partition = self.progress.topics[place.topic].partitions[place.partition]
        first = self._source.find_offsets(place.topic, EARLIEST, [place.partition])[place.partition]
        if first <= partition.next_offset:
            raise ConnectorRefused(
                f"{place.topic}-{place.partition}: the source ends before offset {partition.next_offset}, up to which "
                "it was copied: it has lost records that the target has; 'ottla mirror forget' lets it be copied anew"
            )
        if self._mirror.lost == "refuse":
            raise ConnectorRefused(
                f"{place.topic}-{place.partition}: offset {partition.next_offset} is not on the source any more, which "
                f'begins at {first}: records were lost before they were copied; with lost = "skip" it goes on there'
            )
        partition.next_offset, partition.leader_epoch = first, -1
        self._reader.assign({place: first})

    # Topics

    def _refresh(self) -> None:
        """Find new topics and partitions, and keep the copies like them."""
        there = self._source.list_topics()
        chosen = self._topics.chosen(there)
        self._check_targets(chosen)
        copied = self._without_cycles(chosen)
        if self._claim_new(copied):
            copied = self._without_cycles(copied)  # of two mirrors to each other at once, one sees the other
        pairs = self._topics.pairs(copied)
        for pair in pairs.values():
            self._take(pair)
        present = {name: topic for name, topic in self.progress.topics.items() if name in pairs}
        self._groups.tell_lag(present)
        self._groups.translate(present)
        gone = set(self.progress.topics) - {topic.name for topic in there}
        self._say(len(pairs), len(chosen) - len(copied), gone)

    def _say(self, count: int, left_out: int, gone: set[str]) -> None:
        words = [f"{count} topics, {len(self._assigned)} partitions, {self._behind():,} records behind"]
        if left_out:
            words.append(f"{left_out} {LEFT_OUT}")
        if gone:
            words.append(f"not on the source any more: {', '.join(sorted(gone))}")
        self._task.doing = "; ".join(words)

    def _check_targets(self, chosen: list[Topic]) -> None:
        """A copy that was deleted is not made again without a word: what it had would not come back."""
        known = [self.progress.topics[topic.name] for topic in chosen if topic.name in self.progress.topics]
        there = {topic.name: topic.topic_id.hex() for topic in self._target.list_topics()}
        for topic in known:
            if topic.target not in there:
                raise ConnectorRefused(
                    f"topic {topic.target} was deleted on the target; 'ottla mirror forget' lets it be copied anew"
                )
            if there[topic.target] != topic.target_id:
                raise _recreated(topic.target, "target")

    def _claim_new(self, topics: list[Topic]) -> bool:
        """Say on the target what its new topics are copies of, before anything is copied; whether there are any."""
        new = [topic.name for topic in topics if topic.name not in self.progress.topics]
        if not new:
            return False
        of_source, on_target = Origins(self._mirror.source, OPTIONS).read(), Origins(self._mirror.target, OPTIONS)
        claimed = on_target.read()
        there = {topic.name for topic in self._target.list_topics()}
        claims: dict[str, Origin | None] = {}
        for name in new:
            copy = self._mirror.choice.target(name)
            if copy in claimed and claimed[copy].mirror == self._task.connector:
                continue  # by another task, or by this one before it ended
            if self._mirror.existing == "refuse" and copy in there and self._has_records(copy):
                raise ConnectorRefused(
                    f"topic {copy} has records on the target that this mirror did not bring; "
                    'choose a prefix, delete it, or say existing = "append"'
                )
            clusters = of_source[name].clusters if name in of_source else []
            claims[copy] = Origin(self._task.connector, name, [self._source_id, *clusters])
        on_target.write(claims)
        return True

    def _has_records(self, topic: str) -> bool:
        """Whether anything was ever written to a topic of the target."""
        return any(self._target.find_offsets(topic, LATEST).values())

    def _without_cycles(self, chosen: list[Topic]) -> list[Topic]:
        origins = Origins(self._mirror.source, OPTIONS).read()
        return [
            topic
            for topic in chosen
            if topic.name not in origins or self._target_id not in origins[topic.name].clusters
        ]

    def _take(self, pair: Pair) -> None:
        """Read the partitions of a topic that are this task's and are not read yet."""
        name, count = pair.source.name, len(pair.source.partitions)
        source_id, target_id = pair.source.topic_id.hex(), pair.target.topic_id.hex()
        topic = self.progress.topics.get(name)
        if topic is not None and topic.source_id != source_id:
            raise _recreated(name, "source")
        indexes = [index for index in range(count) if self._is_mine(name, index)]
        is_new = topic is None
        if topic is None:
            topic = self.progress.topics[name] = TopicProgress(pair.target.name, source_id, target_id)
        missing = [index for index in indexes if index not in topic.partitions]
        if missing:
            edge = LATEST if is_new and self._mirror.start == "latest" else EARLIEST
            for index, offset in self._source.find_offsets(name, edge, missing).items():
                topic.partitions[index] = PartitionProgress(offset)
        if missing or is_new:
            # Or another runner would begin elsewhere, also where the partitions of this task are yet to come.
            self._task.is_commit_wanted = True
        unread: dict[TopicPartition, int | Offset] = {}
        for index in indexes:
            place, partition = TopicPartition(name, index), topic.partitions[index]
            if place not in self._assigned:
                unread[place] = Offset(partition.next_offset, leader_epoch=partition.leader_epoch)
        self._reader.assign(unread)
        self._assigned.update(unread)

    def _is_mine(self, topic: str, index: int) -> bool:
        return zlib.crc32(f"{topic}-{index}".encode()) % self._task.count == self._task.number


def _recreated(topic: str, side: str) -> ConnectorRefused:
    return ConnectorRefused(
        f"topic {topic} was deleted and created again on the {side}; 'ottla mirror forget' lets it be copied anew"
    )
