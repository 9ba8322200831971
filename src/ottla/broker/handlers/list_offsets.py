"""ListOffsets (2), versions 1 to 11: offsets by time, and by the special times -1 to -6.

-5 and -6 ask about tiered storage, of which there is none. A special time that the version does not know yet is
refused for its partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Steps
from ottla.log.errors import LogError
from ottla.log.lookup import FoundOffset, offset_for_timestamp, offset_of_max_timestamp
from ottla.records.batch import CorruptBatch
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.replica.partition import Partition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSION_WITH = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
FIRST_VERSION_WITH_EPOCHS = 4
FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5
READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
NOTHING = FoundOffset(-1, -1, -1)


def handle(broker: Broker, request: ListOffsetsRequest, context: Context) -> Steps:
    named = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    topics = []
    for topic in request.topics:
        answer = yield from _topic(broker, request, topic, named, context.version)
        topics.append(answer)
    return ListOffsetsResponse(topics=topics)


def _topic(
    broker: Broker,
    request: ListOffsetsRequest,
    topic: ListOffsetsTopic,
    named: Counter[tuple[str, int]],
    version: int,
) -> Generator[None, None, ListOffsetsTopicResponse]:
    answers = {}
    for asked in topic.partitions:
        yield
        index = asked.partition_index
        if named[topic.name, index] > 1:
            answers[index] = _failed(index, ErrorCode.INVALID_REQUEST)
            continue
        partition = broker.topics.partition(topic.name, index)
        if partition is None:
            answers[index] = _failed(index, broker.topics.missing_code(topic.name, index))
            continue
        answers[index] = yield from _answer(broker, partition, asked, request.isolation_level, version)
    return ListOffsetsTopicResponse(name=topic.name, partitions=list(answers.values()))


def _answer(
    broker: Broker, partition: Partition, asked: ListOffsetsPartition, isolation: int, version: int
) -> Generator[None, None, ListOffsetsPartitionResponse]:
    index, timestamp = asked.partition_index, asked.timestamp
    if isolation not in ISOLATION_LEVELS:
        return _failed(index, ErrorCode.UNKNOWN_SERVER_ERROR)
    if timestamp < 0 and version < FIRST_VERSION_WITH.get(timestamp, version + 1):
        return _failed(index, ErrorCode.UNSUPPORTED_VERSION)
    try:
        partition.check_epoch(asked.current_leader_epoch)
        partition.check_leader()
    except LogError as refusal:
        return _failed(index, refusal.code)
    if timestamp in (LATEST, MAX_TIMESTAMP) and not partition.knows_high_watermark:
        is_new = version >= FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
        return _failed(index, ErrorCode.OFFSET_NOT_AVAILABLE if is_new else ErrorCode.LEADER_NOT_AVAILABLE)
    try:
        found = yield from _find(partition, timestamp, isolation == READ_COMMITTED)
    except LogError as refusal:
        broker.rot_reports.look(partition.name, refusal)
        return _failed(index, refusal.code)
    except CorruptBatch:
        return _failed(index, ErrorCode.CORRUPT_MESSAGE)
    answer = ListOffsetsPartitionResponse(
        partition_index=index, error_code=0, timestamp=found.timestamp, offset=found.offset
    )
    if version >= FIRST_VERSION_WITH_EPOCHS:
        answer.leader_epoch = found.leader_epoch
    return answer


def _find(partition: Partition, timestamp: int, committed_only: bool) -> Generator[None, None, FoundOffset]:
    log = partition.log
    bound = log.last_stable_offset if committed_only else log.high_watermark
    if timestamp == LATEST:
        return FoundOffset(bound, -1, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.epochs.epoch_at(log.log_start_offset)
        return FoundOffset(log.log_start_offset, -1, partition.leader_epoch if epoch == -1 else epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    steps = offset_of_max_timestamp(log) if timestamp == MAX_TIMESTAMP else offset_for_timestamp(log, timestamp)
    found = yield from steps
    return found if found is not None and found.offset < bound else NOTHING


def _failed(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
