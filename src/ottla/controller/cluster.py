"""The cluster as it was decided and remembered: what decisions look at. Only `replay` changes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar, assert_never

from ottla.controller import layout
from ottla.controller.changes import (
    BrokerChange,
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
    SettingsChange,
)
from ottla.controller.layout import BrokerNode, PartitionState, TopicNode
from ottla.controller.quotas import Entity, entity_at
from ottla.controller.steps import InSteps, finished, parts
from ottla.controller.store import Node

K = TypeVar("K")
V = TypeVar("V")

NOWHERE = BrokerNode({})


class BrokerState(NamedTuple):
    """What is known of a broker."""

    epoch: int  # of its registration; -1: it was never there
    node: BrokerNode = NOWHERE
    is_alive: bool = True
    is_leaving: bool = False
    failed: frozenset[tuple[bytes, int]] = frozenset()  # replicas on a disk that failed, by topic id and index


class Cluster:
    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller_epoch = 1
        self.brokers: dict[int, BrokerState] = {}  # also those that are down
        self.failing: dict[int, frozenset[tuple[bytes, int]]] = {}  # those of them that have replicas on a failed disk
        self.topics: dict[str, TopicNode] = {}
        self.names: dict[bytes, str] = {}  # by topic id
        self.states: dict[str, list[PartitionState]] = {}  # of the partitions of each topic
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.broker_configs: dict[int | None, dict[str, str]] = {}  # None: of all brokers
        self.group_configs: dict[str, dict[str, str]] = {}
        self.quotas: dict[Entity, dict[str, float]] = {}
        self._alike: dict[str, dict[str, None]] = {}  # names that differ only in dots and underscores

    @classmethod
    def read(cls, nodes: Mapping[str, Node]) -> Cluster:
        """The cluster as the nodes of a store have it."""
        return finished(cls.read_in_steps(nodes))

    @classmethod
    def read_in_steps(cls, nodes: Mapping[str, Node]) -> InSteps[Cluster]:
        cluster = cls()
        cluster.cluster_id = layout.decode_cluster_id(nodes[layout.CLUSTER_ID].data)
        if layout.CONTROLLER_EPOCH in nodes:
            cluster.controller_epoch = layout.decode_controller_epoch(nodes[layout.CONTROLLER_EPOCH].data)
        cluster._read_brokers(nodes)
        cluster.topic_configs = yield from layout.read_configs(nodes, layout.TOPIC_CONFIGS)
        topics = yield from layout.read_topics_and_states(nodes)
        for part in parts(topics.items()):
            for name, (topic, states) in part:
                cluster._add(name, topic, states)
            yield
        broker_configs = yield from layout.read_configs(nodes, layout.BROKER_CONFIGS)
        for text, texts in broker_configs.items():
            if text == layout.DEFAULT_ENTITY or text.isdecimal():  # whatever else somebody put there
                cluster.broker_configs[None if text == layout.DEFAULT_ENTITY else int(text)] = texts
        group_configs = yield from layout.read_configs(nodes, layout.GROUP_CONFIGS)
        for text, texts in group_configs.items():
            cluster.group_configs[layout.unsanitized(text) or ""] = texts
        for root in (layout.CLIENT_QUOTAS, layout.USER_QUOTAS, layout.IP_QUOTAS):
            yield
            for path, node in layout.below(nodes, root):
                entity = entity_at(path)
                if entity is not None and node.data:
                    quotas = {key: float(text) for key, text in layout.decode_config(node.data).items()}
                    if quotas:
                        cluster.quotas[entity] = quotas
        return cluster

    def _read_brokers(self, nodes: Mapping[str, Node]) -> None:
        """One that was started anew since it was last taken in is down: it says itself when it is ready."""
        for path, node in layout.below(nodes, layout.BROKER_EPOCHS):
            node_id, epoch = int(path.rpartition("/")[2]), layout.decode_broker_epoch(node.data)
            registered = nodes.get(layout.broker_path(node_id))
            if registered is not None and registered.created_in == epoch:
                self.brokers[node_id] = BrokerState(epoch, layout.decode_broker(registered.data))
            else:
                self.brokers[node_id] = BrokerState(epoch, is_alive=False)

    def _add(self, name: str, topic: TopicNode, states: list[PartitionState]) -> None:
        self.topics[name] = topic
        self.states[name] = states
        self.topic_configs.setdefault(name, {})
        self.names[topic.topic_id] = name
        if "." in name or "_" in name:
            self._alike.setdefault(name.replace(".", "_"), {})[name] = None

    def _remove(self, name: str) -> None:
        del self.names[self.topics.pop(name).topic_id], self.states[name]
        self.topic_configs.pop(name, None)
        alike = self._alike.get(name.replace(".", "_"), {})
        alike.pop(name, None)
        if not alike:
            self._alike.pop(name.replace(".", "_"), None)

    # Looking

    @property
    def live(self) -> list[int]:
        """The brokers that are there, in order."""
        return sorted(node_id for node_id, broker in self.brokers.items() if broker.is_alive)

    @property
    def usable(self) -> list[int]:
        """Those of them that are not about to stop."""
        return sorted(node_id for node_id, broker in self.brokers.items() if broker.is_alive and not broker.is_leaving)

    def is_alive(self, node_id: int) -> bool:
        broker = self.brokers.get(node_id)
        return broker is not None and broker.is_alive

    def failed_at(self, topic_id: bytes, index: int) -> set[int]:
        """The brokers whose disk failed that has their replica of a partition."""
        return {node_id for node_id, failed in self.failing.items() if (topic_id, index) in failed}

    def state(self, name: str, index: int) -> PartitionState | None:
        """None where there is no such partition."""
        states = self.states.get(name, ())
        return states[index] if 0 <= index < len(states) else None

    def topic_setting(self, name: str, key: str) -> str | None:
        """What was set for a topic, or else for all brokers."""
        text = self.topic_configs.get(name, {}).get(key)
        return self.broker_configs.get(None, {}).get(key) if text is None else text

    def collision(self, name: str) -> str | None:
        """A topic whose metrics would have the same name, in which dots are underscores."""
        if "." not in name and "_" not in name:
            return None
        return next(iter(self._alike.get(name.replace(".", "_"), ())), None)

    # Changing

    def replay(self, change: Change) -> None:
        """A change that the store has."""
        match change:
            case NewTopic(name, node, overrides, states):
                self._add(name, node, list(states))
                self.topic_configs[name] = overrides
            case NewPartitions(name, _, node, states):
                self.topics[name] = node
                self.states[name] = self.states[name] + list(states)
            case RemovedPartitions(name, node):
                self.topics[name] = node
                self.states[name] = self.states[name][: len(node.replicas)]
                self._forget_failures(node)
            case Deletion(name):
                self._remove(name)
            case ChangedReplicas(name, node):
                self.topics[name] = node
                self._forget_failures(node)
            case ChangedStates(changed):
                for name, by_index in changed.items():
                    known = self.states[name]
                    for index, state in by_index.items():
                        known[index] = state
            case BrokerUp() | BrokerDown() | BrokerLeaving() | FailedReplicas() | ForgottenBroker():
                self._replay_broker(change)
            case _:
                self._replay_settings(change)

    def _forget_failures(self, topic: TopicNode) -> None:
        """A replica that went from a broker may come back to it, to a disk that works."""
        for node_id, broker in list(self.brokers.items()) if self.failing else ():
            gone = {
                replica
                for replica in broker.failed
                if replica[0] == topic.topic_id and node_id not in topic.replicas_of(replica[1])
            }
            if gone:
                self._replay_broker(FailedReplicas(node_id, broker.failed - gone))

    def _replay_broker(self, change: BrokerChange) -> None:
        match change:
            case BrokerUp(node_id, epoch, node):
                self.brokers[node_id] = BrokerState(epoch, node)
            case BrokerDown(node_id):
                self.brokers[node_id] = self.brokers[node_id]._replace(is_alive=False, is_leaving=False)
            case BrokerLeaving(node_id):
                self.brokers[node_id] = self.brokers[node_id]._replace(is_leaving=True)
            case FailedReplicas(node_id, replicas):
                self.brokers[node_id] = self.brokers[node_id]._replace(failed=replicas)
            case ForgottenBroker(node_id):
                self.brokers.pop(node_id, None)
            case _:
                assert_never(change)
        self.failing = {node_id: broker.failed for node_id, broker in self.brokers.items() if broker.failed}

    def _replay_settings(self, change: SettingsChange) -> None:
        match change:
            case ChangedTopicConfig(name, texts):
                self.topic_configs[name] = texts
            case ChangedBrokerConfig(node_id, texts):
                self.broker_configs[node_id] = texts
            case ChangedGroupConfig(group_id, texts):
                _put(self.group_configs, group_id, texts)
            case ChangedQuotas(entity, quotas):
                _put(self.quotas, entity, quotas)
            case _:
                assert_never(change)


def _put(table: dict[K, dict[str, V]], key: K, values: dict[str, V]) -> None:
    """What has no values is not in the table."""
    if values:
        table[key] = values
    else:
        table.pop(key, None)
