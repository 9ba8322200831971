"""Decisions on topics, case by case, in the codes and words of Apache Kafka 4.3.1."""

import itertools
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.assignment import spread
from ottla.controller.changes import BrokerDown, BrokerUp, Deletion, NewPartitions, NewTopic
from ottla.controller.cluster import Cluster
from ottla.controller.layout import BrokerNode, PartitionState, TopicNode, first_states
from ottla.controller.topics import (
    Defaults,
    decide_creations,
    decide_deletions,
    decide_expansions,
    refuse_expansions,
)
from ottla.log.topic_defaults import KAFKA_DEFAULTS
from ottla.wire.errors import ApiError
from ottla.wire.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig
from ottla.wire.messages.delete_topics import DeleteTopicState
from ottla.wire.uuids import ZERO_UUID

DEFAULTS = Defaults(KAFKA_DEFAULTS, partitions=2, replication_factor=1)
Configs = Sequence[tuple[str, str | None]]
Manual = Sequence[tuple[int, list[int]]]


def cluster(*brokers: int, **topics: int) -> Cluster:
    """Topics by name with their number of partitions; the id of the n-th is n in every byte."""
    known = Cluster()
    for node_id in brokers or (1,):
        known.replay(BrokerUp(node_id, 1, BrokerNode({})))
    for number, (name, count) in enumerate(topics.items(), 1):
        known.replay(new_topic(name.replace("DOT", "."), bytes([number] * 16), [[1]] * count))
    return known


def new_topic(name: str, topic_id: bytes, replicas: list[list[int]], **overrides: str) -> NewTopic:
    texts = {key.replace("_", "."): text for key, text in overrides.items()}
    return NewTopic(name, TopicNode(topic_id, replicas), texts, first_states(replicas))


def topic(name: str, count: int = 1, factor: int = 1, manual: Manual = (), configs: Configs = ()) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=factor,
        assignments=[CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in manual],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )


def create(known: Cluster, *asked: CreatableTopic) -> dict[str, NewTopic | ApiError]:
    ids = (number.to_bytes(16) for number in itertools.count(100))
    return decide_creations(known, asked, DEFAULTS, Random(1), lambda: next(ids))


def told(decision: object) -> tuple[int, str | None]:
    assert isinstance(decision, ApiError), decision
    return int(decision.code), decision.message


NAME = "Topic name is invalid: "
MANUAL = "The manual partition assignment includes "
CREATIONS = [
    (topic("there"), 36, "Topic 'there' already exists."),
    (topic("there", 0, configs=[("foo", "1")]), 36, "Topic 'there' already exists."),
    (topic("a_b"), 17, "Topic 'a_b' collides with existing topic: a.b"),
    (topic("a_b", configs=[("foo", "1")]), 17, "Topic 'a_b' collides with existing topic: a.b"),
    (topic(""), 17, f"{NAME}the empty string is not allowed"),
    (topic("."), 17, f"{NAME}'.' is not allowed"),
    (topic(".."), 17, f"{NAME}'..' is not allowed"),
    (
        topic("a b"),
        17,
        f"{NAME}'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
    ),
    (topic("ü"), 17, f"{NAME}'ü' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    (topic("x" * 250), 17, f"{NAME}the length of '{'x' * 250}' is longer than the max allowed length 249"),
    (topic("__cluster_metadata"), 42, "Creation of internal topic __cluster_metadata is prohibited."),
    (topic("p", 0), 37, "Number of partitions was set to an invalid non-positive value."),
    (topic("p", -2), 37, "Number of partitions was set to an invalid non-positive value."),
    (topic("p", 1, 0), 38, "Replication factor must be larger than 0, or -1 to use the default value."),
    (topic("p", 0, -2), 38, "Replication factor must be larger than 0, or -1 to use the default value."),
    (
        topic("p", 1, 3),
        38,
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because "
        "only 2 broker(s) are registered or some brokers have all their log directories cordoned.",
    ),
    (topic("p", 10_000), 44, "Unable to perform excessively large batch operation."),
    (topic("p", 10_001), 44, "Excessively large number of partitions per request."),
    (
        topic("p", 1, -1, [(0, [1])]),
        42,
        "A manual partition assignment was specified, but numPartitions was not set to -1.",
    ),
    (
        topic("p", -1, 1, [(0, [1])]),
        42,
        "A manual partition assignment was specified, but replication factor was not set to -1.",
    ),
    (topic("p", -1, -1, [(1, [1])]), 39, "partitions should be a consecutive 0-based integer sequence"),
    (topic("p", -1, -1, [(0, [1]), (2, [1])]), 39, "partitions should be a consecutive 0-based integer sequence"),
    (topic("p", -1, -1, [(0, [9])]), 39, f"{MANUAL}broker 9, but no such broker is registered."),
    (topic("p", -1, -1, [(0, [1, 1])]), 39, f"{MANUAL}the broker 1 more than once."),
    (topic("p", -1, -1, [(0, [])]), 39, f"{MANUAL}an empty replica list."),
    (topic("p", -1, -1, [(0, [1]), (0, [1])]), 39, "Found multiple manual partition assignments for partition 0"),
    (
        topic("p", -1, -1, [(0, [1]), (1, [1, 2])]),
        39,
        f"{MANUAL}a partition with 2 replica(s), but this is not consistent with previous partitions, which have "
        "1 replica(s).",
    ),
    (topic("p", 0, 0, configs=[("foo", "1")]), 40, "Unknown topic config name: foo"),
    (
        topic("p", configs=[("retention.ms", "abc")]),
        40,
        "Invalid value abc for configuration retention.ms: Not a number of type LONG",
    ),
    (topic("p", configs=[("retention.ms", None)]), 40, "Null value not supported for topic configs: retention.ms"),
]


@pytest.mark.parametrize(("asked", "code", "message"), CREATIONS)
def test_a_topic_that_may_not_be_created(asked: CreatableTopic, code: int, message: str) -> None:
    known = cluster(1, 2, there=1, aDOTb=1)
    assert told(create(known, asked)[asked.name]) == (code, message)


def test_a_topic_gets_what_it_asks_for_and_else_the_defaults() -> None:
    decisions = create(
        cluster(7),
        topic("own", 3, 1, configs=[("retention.ms", "1"), ("retention.ms", "2")]),
        topic("default", -1, -1),
        topic("manual", -1, -1, [(1, [7]), (0, [7])]),
    )
    assert decisions == {
        "own": new_topic("own", (100).to_bytes(16), [[7]] * 3, retention_ms="2"),
        "default": new_topic("default", (101).to_bytes(16), [[7]] * 2),
        "manual": new_topic("manual", (102).to_bytes(16), [[7]] * 2),
    }


def test_a_manual_assignment_may_name_brokers_that_are_down_but_not_only_those() -> None:
    known = cluster(1, 2, 3)
    known.replay(BrokerDown(2))
    known.controller_epoch = 7
    decisions = create(known, topic("t", -1, -1, [(0, [2, 3, 1])]), topic("u", -1, -1, [(0, [2])]))
    made = decisions["t"]
    assert isinstance(made, NewTopic)
    assert made.states == [PartitionState(3, 0, (3, 1), controller_epoch=7)]
    message = (
        "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled shutdown."
    )
    assert told(decisions["u"]) == (39, message)


def test_brokers_that_are_down_get_replicas_only_where_the_others_are_too_few() -> None:
    known = cluster(1, 2, 3)
    known.replay(BrokerDown(2))
    decisions = create(known, topic("two", 4, 2), topic("three", 4, 3), topic("four", 1, 4))
    two, three = decisions["two"], decisions["three"]
    assert isinstance(two, NewTopic)
    assert isinstance(three, NewTopic)
    assert all(set(replicas) == {1, 3} for replicas in two.node.replicas)
    assert all(replicas[-1] == 2 for replicas in three.node.replicas)
    assert all(set(state.in_sync) == {1, 3} and state.leader_id != 2 for state in three.states)
    assert told(decisions["four"])[0] == 38


def test_a_name_that_comes_twice_is_refused_and_comes_last() -> None:
    decisions = create(cluster(), topic("twice"), topic("twice"), topic("once"))
    assert list(decisions) == ["once", "twice"]
    assert isinstance(decisions["once"], NewTopic)
    assert told(decisions["twice"]) == (42, "Duplicate topic name.")


def test_too_much_at_once_refuses_everything() -> None:
    decisions = create(cluster(), topic("a", 5000), topic("b", 4999), topic("", 1))
    assert {told(decision) for decision in decisions.values()} == {
        (44, "Unable to perform excessively large batch operation.")
    }
    assert isinstance(create(cluster(), topic("a", 5000), topic("b", 4998))["b"], NewTopic)


def test_five_thousand_topics_are_one_request() -> None:
    decisions = create(cluster(), *(topic(f"t{number}") for number in range(5000)))
    assert all(isinstance(decision, NewTopic) for decision in decisions.values())


def test_names_of_one_request_do_not_collide_with_each_other() -> None:
    assert all(isinstance(decision, NewTopic) for decision in create(cluster(), topic("v.1"), topic("v_1")).values())


def test_a_deleted_topic_collides_with_nothing() -> None:
    known = cluster(aDOTb=1, a_c=1)
    known.replay(Deletion("a.b", bytes([1] * 16), 1))
    assert isinstance(create(known, topic("a_b"))["a_b"], NewTopic)
    assert told(create(known, topic("a.c"))["a.c"])[0] == 17


# Replicas


@given(st.integers(1, 7), st.integers(1, 40), st.integers(0, 40), st.randoms(use_true_random=False), st.data())
def test_replicas_are_spread_evenly(brokers: int, count: int, first: int, random: Random, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, brokers))
    ids = list(range(100, 100 + brokers))
    assignment = spread(ids, count, factor, random, first)
    assert len(assignment) == count
    assert all(len(set(replicas)) == factor and set(replicas) <= set(ids) for replicas in assignment)
    leaders = [sum(replicas[0] == broker for replicas in assignment) for broker in ids]
    assert max(leaders) - min(leaders) <= 1


# Expanding


def expand(*asked: tuple[str, int, list[list[int]] | None]) -> dict[str, NewPartitions | ApiError]:
    topics = [
        CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None if manual is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in manual],
        )
        for name, count, manual in asked
    ]
    known = cluster(1, 2, t=3, u=1, __consumer_offsets=1)
    refused = refuse_expansions(known, topics)
    left = [topic for topic in topics if topic.name not in refused]
    return {**decide_expansions(known, left, Random(1)), **refused}


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (("t", 3, None), 37, "Topic already has 3 partition(s)."),
        (("t", 2, None), 37, "The topic t currently has 3 partition(s); 2 would not be an increase."),
        (("t", -1, None), 37, "The topic t currently has 3 partition(s); -1 would not be an increase."),
        (("x", 3, None), 3, None),
        (("", 3, None), 3, None),
        (("t", 5, [[1]]), 39, "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."),
        (("t", 4, []), 39, "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified."),
        (("t", 4, [[9]]), 39, f"{MANUAL}broker 9, but no such broker is registered."),
        (("t", 4, [[1, 1]]), 39, f"{MANUAL}the broker 1 more than once."),
        (("t", 4, [[]]), 39, f"{MANUAL}an empty replica list."),
        (
            ("t", 4, [[1, 2]]),
            39,
            f"{MANUAL}a partition with 2 replica(s), but this is not consistent with previous partitions, which have "
            "1 replica(s).",
        ),
        (("t", 10_004, None), -1, None),
        (
            ("__consumer_offsets", 2, None),
            37,
            "The partitions of __consumer_offsets cannot be more: groups and transactions would be looked for in "
            "others.",
        ),
    ],
)
def test_a_topic_that_may_not_be_expanded(
    asked: tuple[str, int, list[list[int]] | None], code: int, message: str | None
) -> None:
    assert told(expand(asked)[asked[0]]) == (code, message)


def test_new_partitions_follow_those_there_are() -> None:
    decision = expand(("t", 5, [[2], [1]]))["t"]
    assert isinstance(decision, NewPartitions)
    assert (decision.name, decision.first, decision.replicas) == ("t", 3, [[2], [1]])
    assert decision.node.replicas == [[1], [1], [1], [2], [1]]
    chosen = expand(("t", 10_003, None))["t"]
    assert isinstance(chosen, NewPartitions)
    assert len(chosen.replicas) == 10_000


def test_a_topic_that_is_expanded_twice_at_once_stays() -> None:
    decisions = expand(("t", 4, None), ("t", 5, None), ("u", 2, None))
    assert told(decisions["t"]) == (42, "Duplicate topic name.")
    assert isinstance(decisions["u"], NewPartitions)


# Deleting

ID_OF_T, ID_OF_U, NO_ID = bytes([1] * 16), bytes([2] * 16), bytes([9] * 16)
Named = tuple[str | None, bytes]


@pytest.mark.parametrize(
    ("asked", "answers"),
    [
        ([("t", ZERO_UUID)], [("t", ID_OF_T, None)]),
        ([(None, ID_OF_T)], [("t", ID_OF_T, None)]),
        ([("t", ZERO_UUID), (None, ID_OF_U)], [("t", ID_OF_T, None), ("u", ID_OF_U, None)]),
        ([("x", ZERO_UUID)], [("x", ZERO_UUID, (3, "This server does not host this topic-partition."))]),
        ([(None, NO_ID)], [(None, NO_ID, (100, "This server does not host this topic ID."))]),
        ([("t", ID_OF_T)], [("t", ID_OF_T, (42, "You may not specify both topic name and topic id."))]),
        ([(None, ZERO_UUID)], [(None, ZERO_UUID, (42, "Neither topic name nor id were specified."))]),
        ([("t", ZERO_UUID)] * 2, [("t", ZERO_UUID, (42, "Duplicate topic name."))]),
        ([(None, ID_OF_T)] * 2, [(None, ID_OF_T, (42, "Duplicate topic id."))]),
        (
            [("t", ZERO_UUID), (None, ID_OF_T)],
            [("t", ID_OF_T, (42, "The provided topic name maps to an ID that was already supplied."))],
        ),
    ],
)
def test_deletions(asked: list[Named], answers: list[tuple[str | None, bytes, tuple[int, str] | None]]) -> None:
    states = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in asked]
    decided = list(decide_deletions(cluster(t=1, u=1), states))
    found = [
        (name, topic_id, None if isinstance(decision, Deletion) else told(decision))
        for name, topic_id, decision in decided
    ]
    assert found == answers
    assert all(answer.decision.name == answer.name for answer in decided if isinstance(answer.decision, Deletion))
