"""What a client knows of a cluster: its brokers, and the topics it asked for. Plain data, made from answers."""

from __future__ import annotations

from typing import NamedTuple

from ottla.client.errors import ServerError
from ottla.client.network.address import Address
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from ottla.wire.uuids import ZERO_UUID

NO_LEADER = -1


class Partition(NamedTuple):
    index: int  # type: ignore[assignment]
    leader_id: int  # -1: none
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]

    @property
    def has_leader(self) -> bool:
        return self.leader_id != NO_LEADER


class Topic(NamedTuple):
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[Partition, ...]  # by index, from 0 on

    @property
    def has_id(self) -> bool:
        """Brokers before 2.8 gave none."""
        return self.topic_id != ZERO_UUID


class ClusterMetadata(NamedTuple):
    cluster_id: str | None
    controller_id: int
    brokers: dict[int, Address]
    topics: dict[str, Topic | ServerError]


def read_metadata(answer: MetadataResponse) -> ClusterMetadata:
    """MetadataResponse as it is used here. What is wrong with a topic stands in its place."""
    return ClusterMetadata(
        cluster_id=answer.cluster_id,
        controller_id=answer.controller_id,
        brokers={broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers},
        topics={topic.name: _read_topic(topic, topic.name) for topic in answer.topics if topic.name is not None},
    )


def _read_topic(topic: MetadataResponseTopic, name: str) -> Topic | ServerError:
    if topic.error_code:
        is_unknown = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ServerError(topic.error_code, "there is no such topic" if is_unknown else None, topic=name)
    partitions = tuple(
        Partition(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    )
    return Topic(name, topic.topic_id, topic.is_internal, partitions)
