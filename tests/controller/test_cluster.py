"""What the cluster replays and what the store remembers are the same, after any row of decisions."""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.controller.changes import (
    Change,
    ChangedBrokerConfig,
    ChangedGroupConfig,
    ChangedQuotas,
    ChangedTopicConfig,
    Deletion,
    NewPartitions,
    NewTopic,
    operations_of,
)
from ottla.controller.cluster import Cluster
from ottla.controller.feed import changes_between, changes_of, decode_changes, encode_changes
from ottla.controller.founding import founding_operations
from ottla.controller.layout import BrokerNode, broker_path, encode_broker
from ottla.controller.leaders import broker_down, broker_leaving, broker_up, replicas_failed, rules_in
from ottla.controller.memory_nodes import MemoryNodes, MemoryTree
from ottla.controller.quotas import CLIENT_ID, IP, USER, Entity
from ottla.controller.steps import finished
from ottla.controller.store import Create, Delete
from ottla.controller.topics import (
    Defaults,
    decide_creations,
    decide_deletions,
    decide_expansions,
    still_possible,
)
from ottla.log.topic_defaults import KAFKA_DEFAULTS
from ottla.wire.messages.create_partitions import CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic
from ottla.wire.messages.delete_topics import DeleteTopicState
from ottla.wire.uuids import ZERO_UUID

BROKERS = [1, 2, 3]
NAMES = st.sampled_from(["a", "b.c", "b_c", "d"])
TEXTS = st.dictionaries(st.sampled_from(["retention.ms", "segment.ms"]), st.sampled_from(["1", "7"]), max_size=2)
NOBODY: Entity = ((CLIENT_ID, None),)
ENTITIES: list[Entity] = [
    NOBODY,
    ((CLIENT_ID, "a/b"),),
    ((USER, "u"),),
    ((CLIENT_ID, "c"), (USER, "u")),
    ((CLIENT_ID, None), (USER, None)),
    ((IP, "10.0.0.1"),),
]


class DecidedCluster(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.nodes = MemoryNodes(MemoryTree())
        self.nodes.commit(founding_operations({}, {"min.insync.replicas": "1"}, lambda: "cluster"))
        assert founding_operations(self.nodes.tree(""), {}, lambda: "another") == []
        self.cluster, self.told, self.late = (Cluster.read(self.nodes.tree("")) for _ in range(3))
        for node_id in BROKERS:
            self.start_broker(node_id)
        self.random = Random(1)
        self.ids = iter(range(1, 1 << 30))

    def make(self, *changes: Change) -> None:
        operations = list(operations_of(changes))
        if operations:
            self.nodes.commit(operations)
        for change in changes:
            self.cluster.replay(change)
        for change in decode_changes(encode_changes(changes)):
            self.told.replay(change)

    @rule(name=NAMES, count=st.integers(1, 4), factor=st.integers(1, 3), is_made=st.booleans())
    def create(self, name: str, count: int, factor: int, is_made: bool) -> None:
        asked = CreatableTopic(name=name, num_partitions=count, replication_factor=factor, assignments=[], configs=[])
        new_id = next(self.ids).to_bytes(16, "big")
        decided = decide_creations(self.cluster, [asked], Defaults(KAFKA_DEFAULTS), self.random, lambda: new_id)[name]
        if isinstance(decided, NewTopic):
            self.make(decided)
            if not is_made:
                self.make(*still_possible(self.cluster, [decided.undone()]))
                assert name not in self.cluster.topics

    @rule(name=NAMES, count=st.integers(1, 6), is_made=st.booleans())
    def expand(self, name: str, count: int, is_made: bool) -> None:
        asked = CreatePartitionsTopic(name=name, count=count, assignments=None)
        decided = decide_expansions(self.cluster, [asked], self.random)[name]
        if isinstance(decided, NewPartitions):
            before = self.cluster.topics[name]
            self.make(decided)
            if not is_made:
                self.make(*still_possible(self.cluster, [decided.undone()]))
                assert self.cluster.topics[name] == before

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        [answer] = decide_deletions(self.cluster, [DeleteTopicState(name=name, topic_id=ZERO_UUID)])
        if isinstance(answer.decision, Deletion):
            self.make(answer.decision)

    @rule(name=NAMES, texts=TEXTS)
    def configure_topic(self, name: str, texts: dict[str, str]) -> None:
        if name in self.cluster.topics:
            self.make(ChangedTopicConfig(name, texts))

    @rule(node_id=st.sampled_from([None, 1, 2]), texts=TEXTS)
    def configure_broker(self, node_id: int | None, texts: dict[str, str]) -> None:
        self.make(ChangedBrokerConfig(node_id, texts))

    @rule(group_id=st.sampled_from(["g", "a b/ö", "<default>"]), texts=TEXTS)
    def configure_group(self, group_id: str, texts: dict[str, str]) -> None:
        self.make(ChangedGroupConfig(group_id, texts, group_id in self.cluster.group_configs))

    @rule(entity=st.sampled_from(ENTITIES), rate=st.sampled_from([None, 1.5, 1e9]))
    def limit(self, entity: Entity, rate: float | None) -> None:
        self.make(ChangedQuotas(entity, {} if rate is None else {"producer_byte_rate": rate}))

    @rule(node_id=st.sampled_from(BROKERS))
    def start_broker(self, node_id: int) -> None:
        before = {name: [state.leader_epoch for state in states] for name, states in self.cluster.states.items()}
        path, node = broker_path(node_id), BrokerNode({"PLAINTEXT": ("here", 9000 + node_id)}, "rack", 17)
        if path in self.nodes.tree(""):
            self.nodes.commit([Delete(path)])
        self.nodes.commit([Create(path, encode_broker(node))])
        epoch = self.nodes.get(path).created_in
        led = {
            (name, index)
            for name, states in self.cluster.states.items()
            for index, state in enumerate(states)
            if state.leader_id == node_id
        }
        self.make(*finished(broker_up(self.cluster, rules_in(self.cluster), node_id, epoch, node)))
        for name, index in led:
            assert self.cluster.states[name][index].leader_epoch == before[name][index] + 1

    @rule(node_id=st.sampled_from(BROKERS))
    def stop_broker(self, node_id: int) -> None:
        path = broker_path(node_id)
        self.make(*finished(broker_down(self.cluster, rules_in(self.cluster), node_id, is_registered=True)))
        assert path not in self.nodes.tree("")

    @rule(node_id=st.sampled_from(BROKERS))
    def leave(self, node_id: int) -> None:
        self.make(*finished(broker_leaving(self.cluster, rules_in(self.cluster), node_id)))

    @rule(node_id=st.sampled_from(BROKERS), name=NAMES, index=st.integers(0, 3))
    def fail_disk(self, node_id: int, name: str, index: int) -> None:
        if name in self.cluster.topics:
            failed = {*self.cluster.brokers[node_id].failed, (self.cluster.topics[name].topic_id, index)}
            self.make(*finished(replicas_failed(self.cluster, rules_in(self.cluster), node_id, failed)))
            assert node_id in self.cluster.failed_at(self.cluster.topics[name].topic_id, index)

    @rule()
    def catch_up(self) -> None:
        for change in decode_changes(encode_changes(changes_between(self.late, self.cluster))):
            self.late.replay(change)
        self.is_same(self.late)
        self.late.cluster_id = "cluster"

    def is_same(self, other: Cluster) -> None:
        for part in ("topics", "names", "states", "topic_configs", "group_configs", "quotas", "brokers", "failing"):
            assert getattr(other, part) == getattr(self.cluster, part), part
        configs = self.cluster.broker_configs
        assert all(other.broker_configs.get(owner, {}) == texts for owner, texts in configs.items())
        for name in ("b.c", "b_c", "a"):
            assert bool(other.collision(name)) == bool(self.cluster.collision(name))

    @invariant()
    def same(self) -> None:
        self.is_same(self.told)
        made = Cluster()
        for change in decode_changes(encode_changes(changes_of(self.cluster))):
            made.replay(change)
        self.is_same(made)
        assert not list(changes_between(made, self.cluster))
        read = Cluster.read(self.nodes.tree(""))
        assert read.cluster_id == self.cluster.cluster_id == "cluster"
        for node_id, broker in self.cluster.brokers.items():  # what only matters while a broker lives is not kept
            known = read.brokers[node_id]
            read.brokers[node_id] = known._replace(node=broker.node, is_leaving=broker.is_leaving, failed=broker.failed)
        read.failing = self.cluster.failing
        self.is_same(read)


TestDecidedCluster = DecidedCluster.TestCase
TestDecidedCluster.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
