"""AlterPartitionReassignments and ListPartitionReassignments."""

from __future__ import annotations

from collections.abc import Sequence

from tests.conformance.cluster_requests import list_reassignments, reassign
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import UNKNOWN, metadata
from tests.conformance.script import Script, Topic

exchanges = Exchanges("reassignments", brokers=3)


def settled(script: Script, topic: Topic, replicas: Sequence[int], partition: int = 0) -> None:
    """Waits until a partition has come to its brokers, and shows it."""

    def is_there(answer: object) -> bool:
        [found] = [each for each in answer.topics[0].partitions if each.partition_index == partition]  # type: ignore[attr-defined]
        return found.replica_nodes == list(replicas) and sorted(found.isr_nodes) == sorted(replicas)

    script.settle(metadata(topic.name), until=is_there)


MOVES = {
    "the same": [1, 2],
    "in another order": [2, 1],
    "one more": [1, 2, 3],
    "one less": [1],
    "without its leader": [2],
    "another follower": [1, 3],
    "another leader": [3, 2],
    "all others": [3],
}


@exchanges.cases(MOVES)
def a_partition_moves(script: Script, replicas: Sequence[int]) -> None:
    topic = script.replicated([1, 2])
    script.send(reassign((topic.name, 0, replicas)))
    settled(script, topic, replicas)


@exchanges.versions((0, 1))
def asked_of_a_broker_that_has_nothing_to_do_with_it(script: Script, version: int) -> None:
    topic = script.replicated([1, 2])
    script.send(reassign((topic.name, 0, [2, 3])), version, on="broker 3")
    settled(script, topic, [2, 3])


REFUSED = {
    "a broker that is not there": [1, 9],
    "a negative broker": [-1],
    "the same broker twice": [1, 2, 2],
    "no brokers": [],
}


@exchanges.cases(REFUSED)
def to(script: Script, replicas: Sequence[int]) -> None:
    script.send(reassign((script.replicated([1, 2]).name, 0, replicas)))


@exchanges.cases({"more": [1, 2, 3], "fewer": [1], "as many": [2, 3]})
def with_as_many_replicas_as_before(script: Script, replicas: Sequence[int]) -> None:
    topic = script.replicated([1, 2])
    script.send(reassign((topic.name, 0, replicas), may_change_factor=False))


@exchanges.cases({"a partition": ("topic", 7), "a negative partition": ("topic", -1), "a topic": ("", 0)})
def without(script: Script, asked: tuple[str, int]) -> None:
    label, partition = asked
    topic = script.replicated([1, 2])
    name = topic.name if label else UNKNOWN.name
    script.send(reassign((name, partition, [2, 3])))
    script.send(reassign((name, partition, None)))


@exchanges.one
def cancelled_while_nothing_moves(script: Script) -> None:
    script.send(reassign((script.replicated([1, 2]).name, 0, None)))


@exchanges.one
def several_at_once(script: Script) -> None:
    topic = script.replicated([1, 2], [2, 3])
    script.send(reassign((topic.name, 0, [2, 1]), (topic.name, 1, [9]), (UNKNOWN.name, 0, [1]), (topic.name, 5, None)))


@exchanges.one
def the_same_partition_twice(script: Script) -> None:
    topic = script.replicated([1, 2])
    script.send(reassign((topic.name, 0, [2, 1]), (topic.name, 0, [1, 2])))


@exchanges.one
def nothing(script: Script) -> None:
    script.send(reassign())


@exchanges.cases({"one": [0], "several": [0, 1, 7], "none": []})
def listed_while_nothing_moves(script: Script, partitions: Sequence[int]) -> None:
    topic = script.replicated([1, 2], [2, 1])
    script.send(list_reassignments({topic.name: partitions}))


@exchanges.one
def listed_for_an_unknown_topic(script: Script) -> None:
    script.send(list_reassignments({UNKNOWN.name: [0]}))


@exchanges.one
def all_are_listed(script: Script) -> None:
    script.replicated([1, 2])
    script.send(list_reassignments(None), only_own=True)
    script.send(list_reassignments({}))
