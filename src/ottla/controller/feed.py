"""Changes as bytes, for those who are told of them, and a cluster as the row of changes that makes it.

The form is the brokers' own, and theirs alone: JSON lists, each with a word for its kind first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ottla.controller.changes import (
    BrokerDown,
    BrokerLeaving,
    BrokerUp,
    Change,
    ChangedBrokerConfig,
    ChangedGroupConfig,
    ChangedQuotas,
    ChangedReplicas,
    ChangedStates,
    ChangedTopicConfig,
    Deletion,
    FailedReplicas,
    ForgottenBroker,
    NewPartitions,
    NewTopic,
    RemovedPartitions,
)
from ottla.controller.cluster import BrokerState, Cluster
from ottla.controller.layout import BrokerNode, PartitionState, TopicNode
from ottla.records.growth import decode_growths, encode_growths

VERSION = 1


class UnknownFeed(ValueError):
    """It was not written by a broker of this version."""


def encode_changes(changes: Iterable[Change]) -> bytes:
    encoded = [[_KINDS[type(change)], *_ENCODERS.get(type(change), list)(change)] for change in changes]
    return json.dumps([VERSION, encoded], separators=(",", ":")).encode()


def decode_changes(data: bytes | memoryview) -> list[Change]:
    try:
        version, encoded = json.loads(bytes(data))
        if version != VERSION:
            raise UnknownFeed(f"version {version} is not known here, only {VERSION}")
        return [_DECODERS[kind](*fields) for kind, *fields in encoded]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnknownFeed(f"{type(error).__name__}: {error}") from error


# Topics


def _topic(node: TopicNode) -> list[Any]:
    fields: list[Any] = [node.topic_id.hex(), node.replicas]
    if node.adding or node.removing or node.growths:
        fields += [[*node.adding.items()], [*node.removing.items()], encode_growths(node.growths)]
    return fields


def _read_topic(
    topic_id: str,
    replicas: list[list[int]],
    adding: Sequence[tuple[int, list[int]]] = (),
    removing: Sequence[tuple[int, list[int]]] = (),
    growths: Sequence[Any] = (),
) -> TopicNode:
    return TopicNode(
        bytes.fromhex(topic_id),
        replicas,
        {int(index): ids for index, ids in adding},
        {int(index): ids for index, ids in removing},
        decode_growths(growths),
    )


def _read_state(
    leader_id: int, leader_epoch: int, in_sync: list[int], controller_epoch: int, partition_epoch: int, *sets: list[int]
) -> PartitionState:
    return PartitionState(
        leader_id, leader_epoch, tuple(in_sync), controller_epoch, partition_epoch, *(tuple(each) for each in sets)
    )


def _read_states(states: list[list[Any]]) -> list[PartitionState]:
    return [_read_state(*fields) for fields in states]


def _changed_states(change: ChangedStates) -> list[Any]:
    return [[[name, [*by_index.items()]] for name, by_index in change.states.items()]]


def _read_changed_states(topics: list[Any]) -> ChangedStates:
    return ChangedStates({name: {index: _read_state(*fields) for index, fields in states} for name, states in topics})


def _read_broker_up(
    node_id: int, epoch: int, endpoints: dict[str, list[Any]], rack: str | None, timestamp_ms: int
) -> BrokerUp:
    found = {name: (host, port) for name, (host, port) in endpoints.items()}
    return BrokerUp(node_id, epoch, BrokerNode(found, rack, timestamp_ms))


_KINDS: dict[type[Change], str] = {
    NewTopic: "topic",
    NewPartitions: "partitions",
    RemovedPartitions: "no partitions",
    Deletion: "no topic",
    ChangedReplicas: "replicas",
    ChangedStates: "states",
    BrokerUp: "up",
    BrokerDown: "down",
    BrokerLeaving: "leaving",
    FailedReplicas: "failed",
    ForgottenBroker: "forgotten",
    ChangedTopicConfig: "topic config",
    ChangedBrokerConfig: "broker config",
    ChangedGroupConfig: "group config",
    ChangedQuotas: "quotas",
}

_ENCODERS: dict[type[Change], Callable[[Any], list[Any]]] = {
    NewTopic: lambda change: [change.name, _topic(change.node), change.overrides, change.states],
    NewPartitions: lambda change: [change.name, change.first, _topic(change.node), change.states],
    RemovedPartitions: lambda change: [change.name, _topic(change.node), change.count_before],
    Deletion: lambda change: [change.name, change.topic_id.hex(), change.partition_count],
    ChangedReplicas: lambda change: [change.name, _topic(change.node)],
    ChangedStates: _changed_states,
    BrokerUp: lambda change: [change.node_id, change.epoch, *change.node],
    FailedReplicas: lambda change: [change.node_id, sorted([each.hex(), index] for each, index in change.replicas)],
}

_DECODERS: dict[str, Callable[..., Change]] = {
    "topic": lambda name, node, overrides, states: NewTopic(name, _read_topic(*node), overrides, _read_states(states)),
    "partitions": lambda name, first, node, states: NewPartitions(
        name, first, _read_topic(*node), _read_states(states)
    ),
    "no partitions": lambda name, node, count: RemovedPartitions(name, _read_topic(*node), count),
    "no topic": lambda name, topic_id, count: Deletion(name, bytes.fromhex(topic_id), count),
    "replicas": lambda name, node: ChangedReplicas(name, _read_topic(*node)),
    "states": _read_changed_states,
    "up": _read_broker_up,
    "down": BrokerDown,
    "leaving": BrokerLeaving,
    "failed": lambda node_id, replicas: FailedReplicas(
        node_id, frozenset((bytes.fromhex(topic_id), index) for topic_id, index in replicas)
    ),
    "forgotten": ForgottenBroker,
    "topic config": ChangedTopicConfig,
    "broker config": ChangedBrokerConfig,
    "group config": ChangedGroupConfig,
    "quotas": lambda entity, quotas: ChangedQuotas(tuple((kind, name) for kind, name in entity), quotas),
}


# Whole clusters


def changes_of(cluster: Cluster) -> Iterator[Change]:
    """What makes this cluster out of an empty one."""
    for node_id, broker in cluster.brokers.items():
        yield from _broker(node_id, broker)
    for node, texts in cluster.broker_configs.items():
        yield ChangedBrokerConfig(node, texts)
    for name, topic in cluster.topics.items():
        yield NewTopic(name, topic, cluster.topic_configs[name], list(cluster.states[name]))
    for group_id, texts in cluster.group_configs.items():
        yield ChangedGroupConfig(group_id, texts, False)
    for entity, quotas in cluster.quotas.items():
        yield ChangedQuotas(entity, quotas)


def _broker(node_id: int, broker: BrokerState) -> Iterator[Change]:
    yield BrokerUp(node_id, broker.epoch, broker.node)
    if broker.failed:
        yield FailedReplicas(node_id, broker.failed)
    if not broker.is_alive:
        yield BrokerDown(node_id)
    elif broker.is_leaving:
        yield BrokerLeaving(node_id)


def changes_between(before: Cluster, after: Cluster) -> Iterator[Change]:
    """What makes the one cluster out of the other."""
    for node_id, broker in after.brokers.items():
        known = before.brokers.get(node_id)
        if known != broker:
            yield from _broker(node_id, broker)
    for node_id in before.brokers.keys() - after.brokers.keys():
        yield ForgottenBroker(node_id)
    for owner in {**before.broker_configs, **after.broker_configs}:
        texts = after.broker_configs.get(owner, {})
        if before.broker_configs.get(owner, {}) != texts:
            yield ChangedBrokerConfig(owner, texts)
    yield from _topics_between(before, after)
    for group_id in {**before.group_configs, **after.group_configs}:
        texts = after.group_configs.get(group_id, {})
        if before.group_configs.get(group_id, {}) != texts:
            yield ChangedGroupConfig(group_id, texts, group_id in before.group_configs)
    for entity in {**before.quotas, **after.quotas}:
        quotas = after.quotas.get(entity, {})
        if before.quotas.get(entity, {}) != quotas:
            yield ChangedQuotas(entity, quotas)


def _topics_between(before: Cluster, after: Cluster) -> Iterator[Change]:
    """Topics that go first: another may have the name of one of them."""
    for name, topic in before.topics.items():
        found = after.topics.get(name)
        if found is None or found.topic_id != topic.topic_id:
            yield Deletion(name, topic.topic_id, len(topic.replicas))
    for name, topic in after.topics.items():
        known, states = before.topics.get(name), after.states[name]
        if known is None or known.topic_id != topic.topic_id:
            yield NewTopic(name, topic, after.topic_configs[name], list(states))
            continue
        if before.topic_configs[name] != after.topic_configs[name]:
            yield ChangedTopicConfig(name, after.topic_configs[name])  # before the states, which were decided under it
        yield from _topic_between(name, known, topic, before.states[name], states)


def _topic_between(
    name: str, known: TopicNode, topic: TopicNode, before: Sequence[PartitionState], after: Sequence[PartitionState]
) -> Iterator[Change]:
    first = len(known.replicas)
    if len(topic.replicas) < first:
        yield RemovedPartitions(name, topic, first)
    elif topic != known:
        yield ChangedReplicas(name, topic._replace(replicas=topic.replicas[:first]))
    if len(topic.replicas) > first:
        yield NewPartitions(name, first, topic, list(after[first:]))
    changed = {index: state for index, state in enumerate(after[:first]) if before[index] != state}
    if changed:
        yield ChangedStates({name: changed})
