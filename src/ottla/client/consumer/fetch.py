"""One Fetch request for partitions of several topics, and its answer row by row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from ottla.client.consumer.fetched_data import FetchedData
from ottla.client.consumer.leader_epochs import UNKNOWN
from ottla.client.errors import DamagedBatch, LogTruncated, MalformedAnswer, ServerError, raise_for
from ottla.client.network.cluster import Cluster, Line
from ottla.client.offsets import Isolation
from ottla.wire.apis import FETCH
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.wire.parts import BUFFERS, Buffer
from ottla.wire.uuids import ZERO_UUID

_LAST_VERSION_WITHOUT_TOPIC_IDS = 12
_FIRST_VERSION_WITH_LAST_EPOCH = 12
_OTHER_ID = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)


class FetchLimits(NamedTuple):
    """How much an answer may bring."""

    partition_bytes: int = 1 << 20
    fetch_bytes: int = 50 << 20


class Wanted(NamedTuple):
    topic: str
    topic_id: bytes
    """Of the topic that the offset is of: the next one of its name has others. Brokers before 2.8 have none."""
    partition: int
    offset: int
    leader_epoch: int
    last_epoch: int = UNKNOWN
    """In which the record before the offset was written, if the leader is to look whether it has that."""


Answer: TypeAlias = list[tuple[Wanted, FetchedData | ServerError | LogTruncated]]


async def fetch(
    cluster: Cluster, leader_id: int, wanted: Iterable[Wanted], *, isolation: Isolation, limits: FetchLimits,
    wait_ms: int, line: Line = Line.FETCHING,
) -> Answer:  # fmt: skip
    """What the leader has of each partition, or what is wrong with it. One that it leaves out is left out."""
    asked = {(one.topic, one.partition): one for one in wanted}
    connection = await cluster.connection(leader_id, line)
    tells_last_epoch = connection.version_of(FETCH) >= _FIRST_VERSION_WITH_LAST_EPOCH
    rows: defaultdict[tuple[str, bytes], list[FetchPartition]] = defaultdict(list)
    for one in asked.values():
        rows[one.topic, one.topic_id].append(
            FetchPartition(
                partition=one.partition,
                current_leader_epoch=one.leader_epoch,
                fetch_offset=one.offset,
                last_fetched_epoch=one.last_epoch if tells_last_epoch else UNKNOWN,
                partition_max_bytes=limits.partition_bytes,
            )
        )
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=limits.fetch_bytes,
        isolation_level=isolation,
        topics=[
            FetchTopic(topic=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in rows.items()
        ],
    )
    at_most = _LAST_VERSION_WITHOUT_TOPIC_IDS if any(topic_id == ZERO_UUID for _, topic_id in rows) else None
    timeout_ms = cluster.options.request_timeout_ms
    answer = await connection.ask(request, FetchResponse, timeout_ms=timeout_ms, at_most=at_most, wait_ms=wait_ms)
    raise_for(answer.error_code, about="Fetch")
    rows_found = list(_rows(answer, {topic_id: name for name, topic_id in rows}))
    cluster.take_hints(
        answer.node_endpoints, ((name, row.partition_index, row.current_leader) for name, row in rows_found)
    )
    found: Answer = []
    for name, row in rows_found:
        one_asked = asked.get((name, row.partition_index))
        if one_asked is None:
            raise MalformedAnswer("the answer to Fetch has a partition that nobody asked for", topic=name)
        if row.error_code in _OTHER_ID:
            cluster.doubt_id(name, one_asked.topic_id)
        found.append((one_asked, _read(one_asked, row)))
    return found


def has_moved(cluster: Cluster, asked: Wanted) -> bool:
    """Whether another leader, or epoch, of the partition is known since it was asked for: it can be asked at once."""
    leader = cluster.leader(asked.topic, asked.partition)
    return leader is not None and leader.leader_epoch > asked.leader_epoch >= 0


def _rows(answer: FetchResponse, names: dict[bytes, str]) -> Iterator[tuple[str, PartitionData]]:
    for answered in answer.responses:
        name = answered.topic or names.get(answered.topic_id, "")
        for row in answered.partitions:
            yield name, row


def _read(wanted: Wanted, row: PartitionData) -> FetchedData | ServerError | LogTruncated:
    if row.error_code == ErrorCode.CORRUPT_MESSAGE:
        return DamagedBatch(wanted.offset, topic=wanted.topic, partition=wanted.partition)
    if row.error_code:
        message = None
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            message = f"offset {wanted.offset} is not in the partition"
        return ServerError(row.error_code, message, topic=wanted.topic, partition=wanted.partition)
    parted = row.diverging_epoch
    if parted is not None and parted.end_offset >= 0:
        end_offset = min(parted.end_offset, wanted.offset)
        return LogTruncated(wanted.topic, wanted.partition, wanted.offset, end_offset, parted.epoch)
    aborted = [(one.producer_id, one.first_offset) for one in row.aborted_transactions or ()]
    return FetchedData(wanted.topic, wanted.partition, wanted.offset, _in_memory(row), aborted, row.high_watermark)


def _in_memory(data: PartitionData) -> Buffer:
    """What was received is in memory; only what a broker sends may lie in a file."""
    assert data.records is None or isinstance(data.records, BUFFERS)
    return data.records or b""
