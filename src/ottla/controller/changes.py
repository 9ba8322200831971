"""What a decision changes in the cluster: each change knows what the store has to remember of it.

The controller decides on changes. They are made true in three steps: the store has the operations, the cluster replays
the change, and each broker applies its part. Nothing else changes the state of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.controller import layout
from ottla.controller.layout import BrokerNode, PartitionState, TopicNode
from ottla.controller.quotas import Entity, quota_path
from ottla.controller.store import Create, Delete, Operation, Put, Set


class NewTopic(NamedTuple):
    name: str
    node: TopicNode
    overrides: dict[str, str]
    states: list[PartitionState]

    def operations(self) -> Iterator[Operation]:
        """Its configuration first, so that nobody sees the topic without."""
        yield Create(layout.topic_config_path(self.name), layout.encode_config(self.overrides))
        yield Create(layout.topic_path(self.name), layout.encode_topic(self.node))
        yield Create(layout.partitions_path(self.name))
        yield from layout.partition_operations(self.name, 0, self.states)

    def undone(self) -> Deletion:
        return Deletion(self.name, self.node.topic_id, len(self.node.replicas))


class NewPartitions(NamedTuple):
    """Partitions that follow those a topic has."""

    name: str
    first: int
    node: TopicNode  # of the topic as it is then
    states: list[PartitionState]  # of the new partitions

    @property
    def replicas(self) -> list[list[int]]:
        """Those of the new partitions."""
        return self.node.replicas[self.first :]

    def operations(self) -> Iterator[Operation]:
        yield Set(layout.topic_path(self.name), layout.encode_topic(self.node))
        yield from layout.partition_operations(self.name, self.first, self.states)

    def undone(self) -> RemovedPartitions:
        return RemovedPartitions(self.name, self.node.without(self.first), len(self.node.replicas))


class RemovedPartitions(NamedTuple):
    """New partitions that could not be made, and never had a record, are none after all."""

    name: str
    node: TopicNode  # of the topic as it is then
    count_before: int

    def operations(self) -> Iterator[Operation]:
        yield Set(layout.topic_path(self.name), layout.encode_topic(self.node))
        yield from layout.partition_removals(self.name, len(self.node.replicas), self.count_before)


class Deletion(NamedTuple):
    name: str
    topic_id: bytes
    partition_count: int

    def operations(self) -> Iterator[Operation]:
        yield from layout.partition_removals(self.name, 0, self.partition_count)
        yield Delete(layout.partitions_path(self.name))
        yield Delete(layout.topic_path(self.name))
        yield Delete(layout.topic_config_path(self.name))


class ChangedReplicas(NamedTuple):
    """Other brokers hold partitions of a topic, or are about to: its replicas, and who comes and goes.

    Or a topic that grows in order has come further.
    """

    name: str
    node: TopicNode

    def operations(self) -> Iterator[Operation]:
        yield Set(layout.topic_path(self.name), layout.encode_topic(self.node))


class ChangedStates(NamedTuple):
    """Who leads some partitions and who is in sync, by topic and index."""

    states: Mapping[str, Mapping[int, PartitionState]]

    def operations(self) -> Iterator[Operation]:
        for name, states in self.states.items():
            for index, state in states.items():
                yield Set(layout.state_path(name, index), layout.encode_state(state))


class BrokerUp(NamedTuple):
    """A broker is there and has its data open. `epoch` is that of its registration."""

    node_id: int
    epoch: int
    node: BrokerNode

    def operations(self) -> Iterator[Operation]:
        yield Put(layout.broker_epoch_path(self.node_id), layout.encode_broker_epoch(self.epoch))


class BrokerDown(NamedTuple):
    """A broker is gone. `is_registered`: the store does not know that yet."""

    node_id: int
    is_registered: bool = False

    def operations(self) -> Iterator[Operation]:
        if self.is_registered:
            yield Delete(layout.broker_path(self.node_id))


class BrokerLeaving(NamedTuple):
    """A broker is about to stop: it shall lead nothing and be in no in-sync set any more."""

    node_id: int

    def operations(self) -> Iterator[Operation]:
        return iter(())


class FailedReplicas(NamedTuple):
    """All replicas of a broker that it cannot use, since their disk failed; by topic id and index.

    The store knows nothing of them: the broker tells every controller, and after its next start there are none.
    """

    node_id: int
    replicas: frozenset[tuple[bytes, int]]

    def operations(self) -> Iterator[Operation]:
        return iter(())


class ForgottenBroker(NamedTuple):
    """A broker that is down will not come back."""

    node_id: int

    def operations(self) -> Iterator[Operation]:
        yield Delete(layout.broker_epoch_path(self.node_id))


class ChangedTopicConfig(NamedTuple):
    name: str
    texts: dict[str, str]

    def operations(self) -> Iterator[Operation]:
        yield Set(layout.topic_config_path(self.name), layout.encode_config(self.texts))


class ChangedBrokerConfig(NamedTuple):
    """Settings of one broker, or with None of all brokers."""

    node_id: int | None
    texts: dict[str, str]

    def operations(self) -> Iterator[Operation]:
        yield Put(layout.broker_config_path(self.node_id), layout.encode_config(self.texts))


class ChangedGroupConfig(NamedTuple):
    group_id: str
    texts: dict[str, str]
    had_texts: bool

    def operations(self) -> Iterator[Operation]:
        path = layout.group_config_path(self.group_id)
        if self.texts:
            yield Put(path, layout.encode_config(self.texts))
        elif self.had_texts:
            yield Delete(path)


class ChangedQuotas(NamedTuple):
    entity: Entity
    quotas: dict[str, float]

    def operations(self) -> Iterator[Operation]:
        texts = {key: repr(value) for key, value in self.quotas.items()}
        yield Put(quota_path(self.entity), layout.encode_config(texts))


TopicChange = NewTopic | NewPartitions | RemovedPartitions | Deletion | ChangedReplicas | ChangedStates
BrokerChange = BrokerUp | BrokerDown | BrokerLeaving | FailedReplicas | ForgottenBroker
SettingsChange = ChangedTopicConfig | ChangedBrokerConfig | ChangedGroupConfig | ChangedQuotas
Change = TopicChange | BrokerChange | SettingsChange


def operations_of(changes: Iterable[Change]) -> Iterator[Operation]:
    for change in changes:
        yield from change.operations()
