"""Metadata, DescribeTopicPartitions and DescribeCluster: what the cluster tells of itself."""

from __future__ import annotations

from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.uuids import ZERO_UUID
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import UNKNOWN, delete_topics, metadata, metadata_by_id
from tests.conformance.script import Script

exchanges = Exchanges("metadata")

VERSIONS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13)
BAD_NAMES = {
    "empty": "",
    "a dot": ".",
    "two dots": "..",
    "a slash": "a/b",
    "a space": "a b",
    "not ASCII": "größe",
    "250 characters": "x" * 250,
    "249 characters": "x" * 249,
}


def by_name(name: str, version: int, *, create: bool = False) -> MetadataRequest:
    """Below version 4 every request may create."""
    return metadata(name, create=create or version < 4)


@exchanges.versions(VERSIONS)
def a_topic(script: Script, version: int) -> None:
    topic = script.topic(partitions=2)
    script.send(by_name(topic.name, version), version)


@exchanges.versions((4, 9, 12, 13))
def a_topic_that_is_not_there(script: Script, version: int) -> None:
    script.send(metadata(UNKNOWN.name), version)


@exchanges.cases({"version 0, an empty list": (0, False), "version 1, null": (1, True), "version 13, null": (13, True)})
def all_topics(script: Script, asked: tuple[int, bool]) -> None:
    version, is_null = asked
    script.topic("a")
    script.topic("b", partitions=2)
    request = MetadataRequest(topics=None if is_null else [], allow_auto_topic_creation=True)
    script.send(request, version, only_own=True)


@exchanges.versions((1, 9, 13))
def no_topics(script: Script, version: int) -> None:
    script.send(MetadataRequest(topics=[]), version)


@exchanges.versions((0, 4, 13))
def a_topic_is_created_by_asking(script: Script, version: int) -> None:
    name = script.name()
    script.send(by_name(name, version, create=True), version)
    script.await_topic()
    script.send(by_name(name, version), version)


@exchanges.cases(BAD_NAMES)
def a_name_that_may_create(script: Script, name: str) -> None:
    script.send(metadata(name, create=True))


@exchanges.cases({label: name for label, name in BAD_NAMES.items() if label != "249 characters"})
def a_name(script: Script, name: str) -> None:
    script.send(metadata(name))


@exchanges.one
def a_name_that_collides_may_create(script: Script) -> None:
    script.topic("a.b")
    script.send(metadata(script.name("a_b"), create=True))


@exchanges.one
def known_and_unknown_names(script: Script) -> None:
    topic = script.topic()
    script.send(metadata(topic.name, UNKNOWN.name, "a/b"))


@exchanges.versions((1, 13))
def the_same_name_twice(script: Script, version: int) -> None:
    topic = script.topic()
    script.send(MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)] * 2), version)


@exchanges.versions((10, 11, 12, 13))
def by_id(script: Script, version: int) -> None:
    script.send(metadata_by_id(script.topic().id), version)


@exchanges.versions((12, 13))
def by_unknown_id(script: Script, version: int) -> None:
    script.send(metadata_by_id(UNKNOWN.id), version)


@exchanges.one
def by_known_and_unknown_id(script: Script) -> None:
    script.send(metadata_by_id(script.topic().id, UNKNOWN.id))


@exchanges.versions((10, 12))
def by_zero_id_without_a_name(script: Script, version: int) -> None:
    script.send(metadata_by_id(ZERO_UUID), version)


@exchanges.one
def by_id_and_name(script: Script) -> None:
    topic = script.topic()
    script.send(metadata_by_id(topic.id, name=topic.name))


@exchanges.one
def by_the_id_of_a_deleted_topic(script: Script) -> None:
    topic = script.topic()
    script.ask(delete_topics(topic.name))
    script.settle(metadata_by_id(topic.id), until=lambda answer: answer.topics[0].error_code != 0)


@exchanges.versions((8, 10, 11, 13))
def with_the_operations_allowed(script: Script, version: int) -> None:
    options = {"include_topic_authorized_operations": True}
    if version < 11:
        options["include_cluster_authorized_operations"] = True
    script.send(metadata(script.topic().name, **options), version)


def describe_topics(*names: str, limit: int = 2000, cursor: Cursor | None = None) -> DescribeTopicPartitionsRequest:
    topics = [TopicRequest(name=name) for name in names]
    return DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)


@exchanges.one
def describe_a_topic(script: Script) -> None:
    topic = script.topic(partitions=3)
    script.send(describe_topics(topic.name))


@exchanges.cases({"unknown": UNKNOWN.name, **{k: v for k, v in BAD_NAMES.items() if k != "249 characters"}})
def describe_a_topic_that_is_not_there(script: Script, name: str) -> None:
    script.send(describe_topics(name))


@exchanges.one
def describe_topics_in_order(script: Script) -> None:
    names = [script.topic(label).name for label in ("c", "a", "b")]
    script.send(describe_topics(*names, names[0]))


@exchanges.cases({"1": 1, "2": 2, "3": 3, "4": 4, "0": 0, "-1": -1})
def describe_topics_page_by_page(script: Script, limit: int) -> None:
    names = [script.topic(label, partitions=2).name for label in ("a", "b")]
    cursor = None
    for _ in range(5):
        answer = script.send(describe_topics(*names, limit=limit, cursor=cursor))
        cursor = None if answer is None else answer.next_cursor
        if cursor is None:
            break


@exchanges.cases(
    {"a partition beyond the end": ("a", 9), "a negative partition": ("a", -1), "a topic in between": ("aa", 0),
     "the last topic": ("z", 0)}
)  # fmt: skip
def describe_topics_from(script: Script, at: tuple[str, int]) -> None:
    label, partition = at
    names = [script.topic(label).name for label in ("a", "b")]
    script.send(describe_topics(*names, cursor=Cursor(topic_name=script.name(label), partition_index=partition)))


@exchanges.one
def describe_all_topics(script: Script) -> None:
    script.topic()
    script.send(describe_topics(), only_own=True)


@exchanges.versions((0, 1, 2))
def describe_the_cluster(script: Script, version: int) -> None:
    script.send(DescribeClusterRequest(include_cluster_authorized_operations=False), version)


@exchanges.versions((0, 2))
def describe_the_cluster_with_the_operations_allowed(script: Script, version: int) -> None:
    script.send(DescribeClusterRequest(include_cluster_authorized_operations=True), version)


@exchanges.cases({"controllers": 2, "nothing known": 3, "0": 0, "-1": -1})
def describe_the_cluster_of(script: Script, endpoint_type: int) -> None:
    script.send(DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint_type))


@exchanges.one
def describe_the_cluster_with_fenced_brokers(script: Script) -> None:
    script.send(DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True))
