"""A cluster of three brokers of which the third is down."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.conformance.cluster_requests import PREFERRED, UNCLEAN, elect, list_reassignments, reassign
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import creatable, create_partitions, create_topics, metadata
from tests.conformance.script import Script, Topic

exchanges = Exchanges("cluster_without_one", brokers=3, without=3)


def made(script: Script, *replicas: int) -> Topic:
    """A topic with one partition that is led by the first of these brokers that is there."""
    [created] = script.ask(
        create_topics(creatable(script.name(), partitions=-1, factor=-1, assignments={0: replicas}))
    ).topics
    topic = script.known("topic", created.topic_id)
    leader = next(node_id for node_id in replicas if node_id != 3)
    script.await_leader(topic, leader, in_sync=len([node_id for node_id in replicas if node_id != 3]))
    return topic


@exchanges.cases({"first": [3, 1], "last": [1, 2, 3], "alone": [3]})
def a_topic_on_it(script: Script, replicas: Sequence[int]) -> None:
    topic = creatable(script.name(), partitions=-1, factor=-1, assignments={0: replicas})
    answer = script.send(create_topics(topic))
    if not answer.topics[0].error_code:
        known = script.known("topic", answer.topics[0].topic_id)
        script.await_leader(known, next(node_id for node_id in replicas if node_id != 3))
        script.send(metadata(known.name))
        script.send(
            DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=known.name)], response_partition_limit=10, cursor=None
            )
        )


@exchanges.cases({"2": 2, "3": 3, "4": 4})
def a_replication_factor(script: Script, factor: int) -> None:
    script.send(create_topics(creatable(script.name(), partitions=1, factor=factor)))


@exchanges.cases({"on it": [[3, 1]], "on it alone": [[3, 2]]})
def more_partitions(script: Script, assignments: list[list[int]]) -> None:
    topic = made(script, 1, 2)
    script.send(create_partitions((topic.name, 2, assignments)))


@exchanges.cases({"preferred": PREFERRED, "unclean": UNCLEAN})
def it_is_elected(script: Script, kind: int) -> None:
    script.send(elect({made(script, 3, 1).name: [0]}, kind))


def listed(script: Script, topic: Topic) -> None:
    script.send(list_reassignments({topic.name: [0]}))
    script.send(list_reassignments(None), only_own=True)


@exchanges.cases({"one more": [1, 2, 3], "another follower": [1, 3], "another leader": [3, 2], "it alone": [3]})
def a_partition_moves_to_it(script: Script, replicas: Sequence[int]) -> None:
    topic = made(script, 1, 2)
    script.send(reassign((topic.name, 0, replicas)))
    listed(script, topic)
    script.send(metadata(topic.name))
    script.send(reassign((topic.name, 0, None)))
    listed(script, topic)
    script.send(metadata(topic.name))


@exchanges.cases({"more": [1, 2, 3], "as many": [2, 3], "fewer": [1]})
def a_move_that_goes_on_keeps_the_factor(script: Script, replicas: Sequence[int]) -> None:
    topic = made(script, 1, 2)
    script.ask(reassign((topic.name, 0, [3, 1])))
    script.send(reassign((topic.name, 0, replicas), may_change_factor=False))


@exchanges.one
def a_partition_moves_from_it(script: Script) -> None:
    topic = made(script, 1, 3)
    script.send(reassign((topic.name, 0, [1])))
    script.send(metadata(topic.name))


@exchanges.cases({"of the brokers": False, "of those that are down too": True})
def the_cluster(script: Script, is_fenced: bool) -> None:
    script.send(DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=is_fenced))


@exchanges.one
def forgotten(script: Script) -> None:
    """Behind all others, which still know it."""
    script.send(UnregisterBrokerRequest(broker_id=3))
    script.settle(
        DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True),
        until=lambda answer: len(answer.brokers) == 2,
    )
    script.send(UnregisterBrokerRequest(broker_id=3))
    script.send(create_topics(creatable(script.name(), partitions=-1, factor=-1, assignments={0: [1, 3]})))
