"""Tells who asks in the wrong place who leads (KIP-951), and consumers which replica is the nearest (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import LeaderIdAndEpoch, NodeEndpoint, ProduceResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.brokers import ReachableBroker
    from ottla.broker.network.connection import Connection
    from ottla.replica.partition import Partition

FIRST_PRODUCE_WITH_LEADER = 10
HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class LeaderHints:
    """The leaders that one answer names, and where they are."""

    def __init__(self, broker: Broker, listener: str) -> None:
        self._broker = broker
        self._listener = listener
        self._named: dict[int, None] = {}

    def leader_of(self, topic: str | bytes, index: int) -> tuple[int, int] | None:
        """The id of a leader and its epoch; None if there is no such partition."""
        cluster = self._broker.cluster
        name = topic if isinstance(topic, str) else cluster.names.get(topic, "")
        states = cluster.states.get(name, ())
        if not 0 <= index < len(states):
            return None
        state = states[index]
        self._named[state.leader_id] = None
        return state.leader_id, state.leader_epoch

    def endpoints(self) -> list[ReachableBroker]:
        """Where those are that were named."""
        if not self._named:
            return []
        return [each for each in self._broker.brokers.of_listener(self._listener) if each.node_id in self._named]


def hint_producer(broker: Broker, connection: Connection, response: ProduceResponse) -> None:
    """Tell who leads what is not led here. What is, was refused for another reason: there the client asks on."""
    refused = [
        (topic.name or topic.topic_id, answer)
        for topic in response.responses
        for answer in topic.partition_responses
        if answer.error_code in HINTED and not _is_led_here(broker, topic.name or topic.topic_id, answer.index)
    ]
    if not refused:
        return
    hints = LeaderHints(broker, connection.listener)
    for topic_key, answer in refused:
        leader = hints.leader_of(topic_key, answer.index)
        if leader is not None:
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    response.node_endpoints = [
        NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack) for each in hints.endpoints()
    ]


def _is_led_here(broker: Broker, topic: str | bytes, index: int) -> bool:
    partition = broker.topics.find((topic, index))
    return partition is not None and partition.is_leader


def nearest_replica(broker: Broker, partition: Partition, rack: str, offset: int) -> int:
    """The replica that a consumer in a rack should read from; -1: this one."""
    if not rack or broker.settings.config.replica_selector_class != RACK_AWARE or not partition.is_replicated:
        return -1
    racks = {node_id: known.node.rack for node_id, known in broker.cluster.brokers.items() if known.is_alive}
    if racks.get(broker.node_id) == rack:
        return -1
    candidates = [
        (follower.end_offset, replica)
        for replica, follower in partition.machine.followers.items()
        if racks.get(replica) == rack and replica in partition.machine.in_sync
        if follower.start_offset <= offset <= follower.end_offset
    ]
    return max(candidates)[1] if candidates else -1
