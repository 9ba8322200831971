"""Throttles of `ottla topics reassign`: how fast replicas are copied that come to a broker.

As kafka-reassign-partitions has it: the topic says which of its replicas are held back, on the side of those that are
copied from and on that of those that come, and each broker that takes part says how fast. All of it goes when the moves
are over; a rate of a broker goes only when nothing moves any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.client import (
    Admin,
    ConfigChange,
    ConfigOperation,
    Resource,
    ResourceKind,
    TopicPartition,
)

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"


def hold_back(admin: Admin, wanted: Mapping[TopicPartition, Sequence[int] | None], bytes_a_second: int) -> None:
    """Before partitions move, say how fast."""
    taking_part: set[int] = set()
    moves = admin.list_partition_reassignments(list(wanted))  # a replica that comes already is not there yet
    for topic in admin.describe_topics(sorted({place.topic for place in wanted})):
        leaders: list[str] = []
        followers: list[str] = []
        for partition in topic.partitions:
            place = TopicPartition(topic.name, partition.index)
            adding = moves[place].adding if place in moves else ()
            present = [each for each in partition.replicas if each not in adding]
            coming = [each for each in wanted.get(place) or () if each not in present]
            if coming:
                leaders += [f"{partition.index}:{each}" for each in present]
                followers += [f"{partition.index}:{each}" for each in coming]
                taking_part.update(present, coming)
        if leaders:
            resource = Resource(ResourceKind.TOPIC, topic.name)
            admin.alter_configs(resource, [_set(LEADERS, ",".join(leaders)), _set(FOLLOWERS, ",".join(followers))])
    known = {broker.node_id for broker in admin.describe_cluster().brokers}  # others are refused with the move
    for node_id in sorted(taking_part & known):
        admin.alter_configs(_broker(node_id), [_set(name, str(bytes_a_second)) for name in RATES])


def let_go(admin: Admin, topics: Sequence[str]) -> None:
    """The moves of these topics are over, or given up."""
    for name in topics:
        admin.alter_configs(Resource(ResourceKind.TOPIC, name), [_unset(LEADERS), _unset(FOLLOWERS)])
    if not admin.list_partition_reassignments():
        for broker in admin.describe_cluster().brokers:
            admin.alter_configs(_broker(broker.node_id), [_unset(name) for name in RATES])


def _broker(node_id: int) -> Resource:
    return Resource(ResourceKind.BROKER, str(node_id))


def _set(name: str, value: str) -> ConfigChange:
    return ConfigChange(name, ConfigOperation.SET, value)


def _unset(name: str) -> ConfigChange:
    return ConfigChange(name, ConfigOperation.DELETE)
