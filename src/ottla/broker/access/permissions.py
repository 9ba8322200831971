"""Which permissions a request takes, an API a function, as Apache Kafka documents them.

Where an answer lists what the request did not name (all topics, all groups, the topics of a fetch session), rules will
have to be asked for what is listed, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from ottla.broker.access.authorizer import Operation, Permission, ResourceType

TopicName: TypeAlias = Callable[[bytes], str]
"""The name of the topic with an id; empty where there is none, which no rule allows by name."""
Permissions: TypeAlias = Callable[[Any, TopicName], Iterable[Permission]]

CLUSTER_NAME = "kafka-cluster"
TRANSACTION_KEYS = 1  # of FindCoordinator
TOPIC_CONFIGS, GROUP_CONFIGS = 2, 32  # resource types of configurations; all others are the cluster's


def nothing(request: Any, topic_name: TopicName) -> Iterable[Permission]:
    """For what everybody may ask."""
    return ()


def on_cluster(operation: Operation) -> Permissions:
    needed = (Permission(operation, ResourceType.CLUSTER, CLUSTER_NAME),)
    return lambda request, topic_name: needed


def on_topics(operation: Operation, field: str = "topics") -> Permissions:
    """On each topic of a list, whose elements have a name or an id, or are names."""

    def permissions(request: Any, topic_name: TopicName) -> Iterator[Permission]:
        for topic in getattr(request, field) or ():
            yield Permission(operation, ResourceType.TOPIC, _name_of(topic, topic_name))

    return permissions


def _name_of(topic: Any, topic_name: TopicName) -> str:
    if isinstance(topic, str):
        return topic
    for field in ("name", "topic"):
        name: str | None = getattr(topic, field, None)
        if name:
            return name
    return topic_name(topic.topic_id) if hasattr(topic, "topic_id") else ""


def on_named(operation: Operation, kind: ResourceType, field: str) -> Permissions:
    """On what one field names: a text, none or a list of them."""

    def permissions(request: Any, topic_name: TopicName) -> Iterator[Permission]:
        value = getattr(request, field)
        for name in [value] if isinstance(value, str) else value or ():
            yield Permission(operation, kind, name)

    return permissions


def on_group(operation: Operation, field: str = "group_id") -> Permissions:
    return on_named(operation, ResourceType.GROUP, field)


def on_transactional_id(operation: Operation, field: str = "transactional_id") -> Permissions:
    return on_named(operation, ResourceType.TRANSACTIONAL_ID, field)


def all_of(*parts: Permissions) -> Permissions:
    def permissions(request: Any, topic_name: TopicName) -> Iterator[Permission]:
        for part in parts:
            yield from part(request, topic_name)

    return permissions


def fetch(request: Any, topic_name: TopicName) -> Iterable[Permission]:
    """Another broker copies whatever it is a replica of; in a session it names little of it."""
    replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    needed = on_cluster(Operation.CLUSTER_ACTION) if replica_id >= 0 else on_topics(Operation.READ)
    return needed(request, topic_name)


def offset_fetch(request: Any, topic_name: TopicName) -> Iterator[Permission]:
    """Version 8 asks for several groups."""
    describe_topics = on_topics(Operation.DESCRIBE)
    for group in request.groups or (request,):
        yield Permission(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        yield from describe_topics(group, topic_name)


def find_coordinator(request: Any, topic_name: TopicName) -> Iterator[Permission]:
    kind = ResourceType.TRANSACTIONAL_ID if request.key_type == TRANSACTION_KEYS else ResourceType.GROUP
    for key in request.coordinator_keys or (request.key,):
        yield Permission(Operation.DESCRIBE, kind, key)


def delete_topics(request: Any, topic_name: TopicName) -> Iterator[Permission]:
    """Version 6 has ids."""
    for topic in (*request.topics, *request.topic_names):
        yield Permission(Operation.DELETE, ResourceType.TOPIC, _name_of(topic, topic_name))


def init_producer_id(request: Any, topic_name: TopicName) -> Iterator[Permission]:
    if request.transactional_id is None:
        yield Permission(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
    else:
        yield Permission(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)


def add_partitions_to_txn(request: Any, topic_name: TopicName) -> Iterable[Permission]:
    """Version 4 has several transactions, and is for brokers."""
    if request.transactions:
        return on_cluster(Operation.CLUSTER_ACTION)(request, topic_name)
    return _add_partitions_of_one(request, topic_name)


_add_partitions_of_one = all_of(
    on_transactional_id(Operation.WRITE, "v3_and_below_transactional_id"),
    on_topics(Operation.WRITE, "v3_and_below_topics"),
)


def on_configs(operation: Operation) -> Permissions:
    kinds = {TOPIC_CONFIGS: ResourceType.TOPIC, GROUP_CONFIGS: ResourceType.GROUP}

    def permissions(request: Any, topic_name: TopicName) -> Iterator[Permission]:
        for resource in request.resources:
            kind = kinds.get(resource.resource_type, ResourceType.CLUSTER)
            name = CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name
            yield Permission(operation, kind, name)

    return permissions
