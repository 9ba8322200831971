"""Topics on three brokers: made, expanded and described."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.messages.metadata import MetadataRequest
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import creatable, create_partitions, create_topics, delete_topics, metadata
from tests.conformance.script import Script

exchanges = Exchanges("cluster_topics", brokers=3)

MANUAL: dict[str, dict[int, Sequence[int]]] = {
    "three replicas": {0: [1, 2, 3]},
    "another leader": {0: [3, 1, 2], 1: [2, 3, 1]},
    "two replicas": {0: [2, 1]},
    "a broker that is not there": {0: [1, 2, 4]},
    "a negative broker": {0: [-1, 1]},
    "the same broker twice": {0: [1, 2, 2]},
    "different factors": {0: [1, 2], 1: [1, 2, 3]},
    "no brokers": {0: []},
    "a gap": {0: [1], 2: [2]},
    "not from 0 on": {1: [1, 2]},
}


@exchanges.cases(MANUAL)
def a_topic_with_its_brokers(script: Script, assignments: dict[int, Sequence[int]]) -> None:
    topic = creatable(script.name(), partitions=-1, factor=-1, assignments=assignments)
    answer = script.send(create_topics(topic))
    if not answer.topics[0].error_code:
        script.known("topic", answer.topics[0].topic_id)
        wanted = len(assignments)
        script.settle(metadata(topic.name), until=lambda answer: len(answer.topics[0].partitions) == wanted)


@exchanges.cases({"1": 1, "3": 3, "4": 4, "0": 0, "-1": -1, "-2": -2})
def a_replication_factor(script: Script, factor: int) -> None:
    script.send(create_topics(creatable(script.name(), partitions=2, factor=factor)))


@exchanges.cases({"1": 1, "3": 3})
def to_another_broker_than_the_first(script: Script, node_id: int) -> None:
    script.send(create_topics(creatable(script.name(), partitions=2, factor=3)), on=f"broker {node_id}")


@exchanges.versions((1, 5, 9, 12, 13))
def metadata_of_a_replicated_topic(script: Script, version: int) -> None:
    topic = script.replicated([1, 2], [2, 3], [3, 1])
    for node_id in (1, 2, 3):
        script.send(metadata(topic.name, create=version < 4), version, on=f"broker {node_id}")


@exchanges.versions((0, 1, 2))
def describe_the_cluster(script: Script, version: int) -> None:
    for node_id in (1, 3):
        script.send(
            DescribeClusterRequest(include_cluster_authorized_operations=False), version, on=f"broker {node_id}"
        )


@exchanges.one
def brokers_without_a_topic(script: Script) -> None:
    script.send(MetadataRequest(topics=[]))


@exchanges.one
def describe_a_replicated_topic(script: Script) -> None:
    topic = script.replicated([1, 2], [2, 3], [3, 1])
    script.send(
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=topic.name)], response_partition_limit=100, cursor=None
        )
    )


MORE: dict[str, tuple[int, list[list[int]]]] = {
    "its brokers": (3, [[3, 1]]),
    "too few brokers": (3, [[3]]),
    "too many brokers": (3, [[3, 1, 2]]),
    "a broker that is not there": (3, [[3, 9]]),
    "the same broker twice": (3, [[3, 3]]),
    "no brokers": (3, [[]]),
    "too few assignments": (4, [[3, 1]]),
    "too many assignments": (3, [[3, 1], [1, 2]]),
}


@exchanges.cases(MORE)
def more_partitions(script: Script, asked: tuple[int, list[list[int]]]) -> None:
    topic = script.replicated([1, 2], [2, 3])
    count, assignments = asked
    answer = script.send(create_partitions((topic.name, count, assignments)))
    wanted = 2 if answer.results[0].error_code else count
    script.settle(metadata(topic.name), until=lambda answer: len(answer.topics[0].partitions) == wanted)


@exchanges.one
def a_replicated_topic_is_deleted(script: Script) -> None:
    topic = script.replicated([1, 2, 3])
    script.send(delete_topics(topic.name), on="broker 3")
    for node_id in (1, 2, 3):
        gone = metadata(topic.name)
        script.settle(gone, until=lambda answer: answer.topics[0].error_code != 0, on=f"broker {node_id}")
