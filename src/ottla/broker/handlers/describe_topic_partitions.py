"""DescribeTopicPartitions (75), version 0.

Topics come in the order of their names, with as many partitions as are asked for.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from ottla.broker.access.authorizer import TOPIC_OPERATIONS
from ottla.controller.layout import NOBODY
from ottla.controller.topic_names import INTERNAL, is_legal
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps
    from ottla.broker.topics import Topic
    from ottla.controller.layout import PartitionState


def handle(broker: Broker, request: DescribeTopicPartitionsRequest, context: Context) -> Steps:
    cursor = request.cursor or Cursor(topic_name="", partition_index=0)
    asked = {topic.name for topic in request.topics}
    if cursor.partition_index < 0 or (request.cursor is not None and asked and cursor.topic_name not in asked):
        return _refused(request, ErrorCode.INVALID_REQUEST)
    if "" in asked:
        return _refused(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    limit = max(min(request.response_partition_limit, broker.settings.config.max_request_partition_size_limit), 1)
    names = sorted(name for name in asked or broker.topics.by_name if name >= cursor.topic_name)
    response = yield from _page(broker, names, cursor, limit)
    return response


def _page(
    broker: Broker, names: list[str], cursor: Cursor, left: int
) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    """As many partitions as are `left`, and where the next page begins."""
    topics = []
    following = None
    for name in names:
        yield
        if left == 0:
            following = Cursor(topic_name=name, partition_index=0)
            break
        topic = broker.topics.by_name.get(name)
        if topic is None:
            topics.append(_unknown(name))
            continue
        first = cursor.partition_index if name == cursor.topic_name else 0
        count = min(topic.partition_count, len(broker.cluster.states.get(name, ())))
        end = min(first + left, count)
        topics.append(_known(broker, topic, first, end))
        if end < count:
            following = Cursor(topic_name=name, partition_index=end)
            break
        left -= max(end - first, 0)
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=following)


def _known(broker: Broker, topic: Topic, first: int, end: int) -> DescribeTopicPartitionsResponseTopic:
    cluster = broker.cluster
    states, live = cluster.states.get(topic.name, []), set(cluster.live)
    partitions = []
    for index in range(first, end):
        sound = live - cluster.failed_at(topic.topic_id, index) if cluster.failing else live
        partitions.append(_partition(index, topic.assignment[index], states[index], sound))
    return DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    index: int, replicas: list[int], state: PartitionState, live: set[int]
) -> DescribeTopicPartitionsResponsePartition:
    """`live`: brokers that are there, with their replica."""
    is_led = state.leader_id in live
    return DescribeTopicPartitionsResponsePartition(
        error_code=0 if is_led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=state.leader_id if is_led else NOBODY,
        leader_epoch=state.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=list(state.in_sync),
        eligible_leader_replicas=list(state.eligible),
        last_known_elr=list(state.last_known),
        offline_replicas=[replica for replica in replicas if replica not in live],
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=name in INTERNAL,
        partitions=[],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _refused(request: DescribeTopicPartitionsRequest, code: ErrorCode) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name, topic_id=ZERO_UUID, partitions=[])
            for topic in request.topics
        ]
    )
