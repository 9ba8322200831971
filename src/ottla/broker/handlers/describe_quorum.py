"""DescribeQuorum (55), versions 0 to 2: who decides in the cluster, and who may.

There is no quorum that votes: a store remembers what one broker, the controller, decides. Any broker may become it,
so all that are there are told as voters. The offset of the controller is the number of its last change, and that of
another broker is the number of the last change that it has (-1: none yet). All changes are in the store, so the high
watermark is their end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.controller.feed import Following
from ottla.broker.loop.slices import Steps, mapped
from ottla.controller.topic_names import CLUSTER_METADATA
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    QuorumPartition,
    QuorumTopic,
    ReplicaState,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

UNKNOWN = Following(-1, -1, -1)
PARTITIONS_A_STEP = 100
NOT_HERE = "This server does not host this topic-partition."


def handle(broker: Broker, request: DescribeQuorumRequest, context: Context) -> Steps:
    named = [(topic.topic_name, topic.partitions) for topic in request.topics[:2]]
    if [(name, [partition.partition_index for partition in asked[:2]]) for name, asked in named] == [
        (CLUSTER_METADATA, [0])
    ]:
        return _quorum(broker)
    topics: list[QuorumTopic] = []
    for topic in request.topics:
        partitions = yield from mapped(_not_here, topic.partitions, PARTITIONS_A_STEP)
        topics.append(QuorumTopic(topic_name=topic.topic_name, partitions=partitions))
        if not len(topics) % PARTITIONS_A_STEP:
            yield None
    return DescribeQuorumResponse(error_code=0, error_message="", topics=topics)


def _not_here(asked: PartitionData) -> QuorumPartition:
    return QuorumPartition(
        partition_index=asked.partition_index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=NOT_HERE,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


def _voter(node_id: int, following: Following) -> ReplicaState:
    return ReplicaState(
        replica_id=node_id,
        log_end_offset=following.position,
        last_fetch_timestamp=following.asked_ms,
        last_caught_up_timestamp=following.caught_up_ms,
    )


def _quorum(broker: Broker) -> DescribeQuorumResponse:
    cluster, feed = broker.cluster, broker.controller.feed
    now_ms = broker.clock_ms()
    following = feed.following | {broker.node_id: Following(feed.position, now_ms, now_ms)}
    partition = QuorumPartition(
        partition_index=0,
        error_code=0,
        error_message="",
        leader_id=broker.membership.controller_id,
        leader_epoch=cluster.controller_epoch,
        high_watermark=feed.position,
        current_voters=[_voter(node_id, following.get(node_id, UNKNOWN)) for node_id in cluster.live],
        observers=[],
    )
    nodes = [
        Node(
            node_id=node_id,
            listeners=[
                Listener(name=name, host=host, port=port)
                for name, (host, port) in cluster.brokers[node_id].node.endpoints.items()
            ],
        )
        for node_id in cluster.live
    ]
    topics = [QuorumTopic(topic_name=CLUSTER_METADATA, partitions=[partition])]
    return DescribeQuorumResponse(error_code=0, error_message="", topics=topics, nodes=nodes)
