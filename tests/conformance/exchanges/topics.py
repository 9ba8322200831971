"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.uuids import ZERO_UUID
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import (
    UNKNOWN,
    creatable,
    create_partitions,
    create_topics,
    delete_topic_names,
    delete_topic_states,
    delete_topics,
    metadata,
)
from tests.conformance.script import Script

exchanges = Exchanges("topics")

BAD_NAMES = {
    "empty": "",
    "a dot": ".",
    "two dots": "..",
    "a slash": "a/b",
    "a parent folder": "../a",
    "a backslash": "a\\b",
    "a space": "a b",
    "a zero byte": "a\0b",
    "not ASCII": "größe",
    "250 characters": "x" * 250,
    "the log of the cluster": "__cluster_metadata",
}


@exchanges.versions((2, 3, 4, 5, 6, 7))
def create(script: Script, version: int) -> None:
    name = script.name()
    script.send(create_topics(creatable(name, partitions=2)), version)
    script.await_topic(partitions=2)
    script.send(metadata(name))


@exchanges.cases({f"version {version}": version for version in (2, 5, 7)})
def create_in_validation_only(script: Script, version: int) -> None:
    name = script.name()
    script.send(create_topics(creatable(name), validate_only=True), version)
    script.send(metadata(name))


@exchanges.cases({f"version {version}": version for version in (2, 5, 7)})
def create_what_is_there(script: Script, version: int) -> None:
    script.send(create_topics(creatable(script.topic().name)), version)


@exchanges.one
def create_in_validation_only_what_is_there(script: Script) -> None:
    script.send(create_topics(creatable(script.topic().name), validate_only=True))


@exchanges.cases(BAD_NAMES)
def create_with_a_bad_name(script: Script, name: str) -> None:
    script.send(create_topics(creatable(name)))


@exchanges.cases({"a_b after a.b": ("a.b", "a_b"), "a.b after a_b": ("a_b", "a.b")})
def create_a_name_that_collides(script: Script, labels: tuple[str, str]) -> None:
    script.topic(labels[0])
    script.send(create_topics(creatable(script.name(labels[1]))))


@exchanges.one
def create_a_name_with_every_sign(script: Script) -> None:
    script.send(create_topics(creatable(script.name("A.z_0-9"))))


COUNTS = {
    "no partitions": (0, 1),
    "-2 partitions": (-2, 1),
    "10000 partitions": (10_000, 1),
    "2^31 - 1 partitions": (2**31 - 1, 1),
    "a factor of 0": (1, 0),
    "a factor of -2": (1, -2),
    "a factor of 2": (1, 2),
    "a factor of 32767": (1, 32767),
    "both of the default": (-1, -1),
    "partitions of the default": (-1, 1),
    "factor of the default": (2, -1),
}


@exchanges.cases(COUNTS)
def create_with(script: Script, counts: tuple[int, int]) -> None:
    partitions, factor = counts
    script.send(create_topics(creatable(script.name(), partitions=partitions, factor=factor)))


@exchanges.cases({"version 2": 2, "version 3": 3, "version 4": 4})
def create_with_defaults(script: Script, version: int) -> None:
    script.send(create_topics(creatable(script.name(), partitions=-1, factor=-1)), version)


ASSIGNMENTS: dict[str, tuple[int, int, dict[int, list[int]]]] = {
    "two partitions": (-1, -1, {0: [1], 1: [1]}),
    "in another order": (-1, -1, {1: [1], 0: [1]}),
    "with a count": (1, -1, {0: [1]}),
    "with a factor": (-1, 1, {0: [1]}),
    "not from 0": (-1, -1, {1: [1]}),
    "with a gap": (-1, -1, {0: [1], 2: [1]}),
    "negative": (-1, -1, {-1: [1]}),
    "of an unknown broker": (-1, -1, {0: [7]}),
    "of a negative broker": (-1, -1, {0: [-1]}),
    "of a broker twice": (-1, -1, {0: [1, 1]}),
    "of no broker": (-1, -1, {0: []}),
    "of unequal length": (-1, -1, {0: [1], 1: [1, 7]}),
}


@exchanges.cases(ASSIGNMENTS)
def create_with_assignments(script: Script, asked: tuple[int, int, dict[int, list[int]]]) -> None:
    partitions, factor, assignments = asked
    topic = creatable(script.name(), partitions=partitions, factor=factor, assignments=assignments)
    script.send(create_topics(topic))


@exchanges.one
def create_several(script: Script) -> None:
    script.send(create_topics(creatable(script.name("a")), creatable("a/b"), creatable(script.name("b"), partitions=0)))


@exchanges.one
def create_the_same_twice(script: Script) -> None:
    twice = creatable(script.name("twice"))
    script.send(create_topics(twice, creatable(script.name("once")), twice))
    script.await_topic("once")
    script.send(metadata(script.name("twice")))


@exchanges.versions((2, 7))
def create_nothing(script: Script, version: int) -> None:
    script.send(create_topics(), version)


CONFIGS: dict[str, list[tuple[str, str | None]]] = {
    "good": [("retention.ms", "1000"), ("cleanup.policy", "compact,delete"), ("max.message.bytes", "2000")],
    "unknown": [("foo", "bar")],
    "an empty key": [("", "bar")],
    "of a broker": [("log.retention.ms", "1000")],
    "a null value": [("retention.ms", None)],
    "the same key twice": [("retention.ms", "1000"), ("retention.ms", "2000")],
    "one good and one bad": [("retention.ms", "1000"), ("segment.bytes", "x")],
    "a long that is text": [("retention.ms", "abc")],
    "a long that is empty": [("retention.ms", "")],
    "a long with a fraction": [("retention.ms", "1.5")],
    "a long with spaces": [("retention.ms", " 1000 ")],
    "a long beyond its size": [("retention.ms", "9223372036854775808")],
    "a long below its least": [("retention.ms", "-2")],
    "an int beyond its size": [("segment.bytes", "2147483648")],
    "an int below its least": [("segment.bytes", "1048575")],
    "an int at its least": [("segment.bytes", "1048576")],
    "an int that is negative": [("max.message.bytes", "-1")],
    "a double that is text": [("min.cleanable.dirty.ratio", "x")],
    "a double too high": [("min.cleanable.dirty.ratio", "1.1")],
    "a double that is negative": [("min.cleanable.dirty.ratio", "-0.1")],
    "a boolean that is none": [("preallocate", "yes")],
    "a boolean in capitals": [("preallocate", "TRUE")],
    "a list with an unknown value": [("cleanup.policy", "compact,shred")],
    "an empty list": [("cleanup.policy", "")],
    "a list with a value twice": [("cleanup.policy", "delete,delete")],
    "a list with spaces": [("cleanup.policy", " compact , delete ")],
    "a choice that is none": [("compression.type", "brotli")],
    "a choice in capitals": [("compression.type", "GZIP")],
    "a choice of timestamps that is none": [("message.timestamp.type", "Never")],
    "a level out of range": [("compression.gzip.level", "10")],
    "a level of zstd out of range": [("compression.zstd.level", "23")],
    "a level of lz4 out of range": [("compression.lz4.level", "0")],
    "in sync replicas of 0": [("min.insync.replicas", "0")],
    "segment.ms of 0": [("segment.ms", "0")],
    "flush.messages of 0": [("flush.messages", "0")],
    "index.interval.bytes negative": [("index.interval.bytes", "-1")],
    "segment.index.bytes of 3": [("segment.index.bytes", "3")],
    "a compaction lag above its highest": [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")],
    "remote storage": [("remote.storage.enable", "true")],
    "local retention above retention": [("local.retention.ms", "10"), ("retention.ms", "5")],
    "throttled replicas": [("leader.replication.throttled.replicas", "0:1,1:1")],
    "throttled replicas that are none": [("leader.replication.throttled.replicas", "foo")],
    "all throttled replicas": [("follower.replication.throttled.replicas", "*")],
    "a setting that is gone": [("message.format.version", "3.0")],
    "down conversion": [("message.downconversion.enable", "true")],
    "unclean election": [("unclean.leader.election.enable", "true")],
}


@exchanges.cases(CONFIGS)
def create_with_a_config(script: Script, configs: list[tuple[str, str | None]]) -> None:
    script.send(create_topics(creatable(script.name(), configs=configs)))


@exchanges.versions((1, 3, 4, 5))
def delete(script: Script, version: int) -> None:
    topic = script.topic()
    script.send(delete_topic_names(topic.name), version)
    script.settle(metadata(topic.name), until=lambda answer: answer.topics[0].error_code != 0)


@exchanges.one
def delete_by_name(script: Script) -> None:
    topic = script.topic()
    script.send(delete_topics(topic.name))
    script.settle(metadata(topic.name), until=lambda answer: answer.topics[0].error_code != 0)


@exchanges.one
def delete_by_id(script: Script) -> None:
    topic = script.topic()
    script.send(delete_topic_states((None, topic.id)))
    script.settle(metadata(topic.name), until=lambda answer: answer.topics[0].error_code != 0)


@exchanges.versions((1, 5))
def delete_what_is_not_there(script: Script, version: int) -> None:
    script.send(delete_topic_names(UNKNOWN.name), version)


BAD_STATES: dict[str, list[tuple[str | None, bytes]]] = {
    "an unknown name": [(UNKNOWN.name, ZERO_UUID)],
    "an empty name": [("", ZERO_UUID)],
    "a name that is not allowed": [("a/b", ZERO_UUID)],
    "an unknown id": [(None, UNKNOWN.id)],
    "a name and an id": [(UNKNOWN.name, UNKNOWN.id)],
    "neither name nor id": [(None, ZERO_UUID)],
    "neither, twice": [(None, ZERO_UUID), (None, ZERO_UUID)],
    "an unknown name twice": [(UNKNOWN.name, ZERO_UUID), (UNKNOWN.name, ZERO_UUID)],
    "an unknown id twice": [(None, UNKNOWN.id), (None, UNKNOWN.id)],
    "nothing": [],
}


@exchanges.cases(BAD_STATES)
def delete_badly(script: Script, states: list[tuple[str | None, bytes]]) -> None:
    script.send(delete_topic_states(*states))


@exchanges.one
def delete_the_same_twice(script: Script) -> None:
    topic = script.topic()
    script.send(delete_topics(topic.name, topic.name))
    script.send(metadata(topic.name))


@exchanges.one
def delete_the_same_by_name_and_by_id(script: Script) -> None:
    topic = script.topic()
    script.send(delete_topic_states((topic.name, ZERO_UUID), (None, topic.id)))


@exchanges.one
def delete_and_create_again(script: Script) -> None:
    topic = script.topic(values=2)
    script.ask(delete_topics(topic.name))
    script.settle(metadata(topic.name), until=lambda answer: answer.topics[0].error_code != 0)
    created = script.send(create_topics(creatable(topic.name)))
    again = script.known("again", created.topics[0].topic_id)
    script.send(delete_topic_states((None, topic.id), (None, again.id)))


@exchanges.versions((0, 1, 2, 3))
def add_partitions(script: Script, version: int) -> None:
    topic = script.topic()
    script.send(create_partitions((topic.name, 3, None)), version)
    script.await_topic(partitions=3)
    script.send(metadata(topic.name))


@exchanges.one
def add_partitions_in_validation_only(script: Script) -> None:
    topic = script.topic()
    script.send(create_partitions((topic.name, 3, None), validate_only=True))
    script.send(metadata(topic.name))


class Added(NamedTuple):
    total: int
    assignments: Sequence[Sequence[int]] | None = None


ADDED = {
    "as many as there are": Added(2),
    "fewer": Added(1),
    "none": Added(0),
    "-1": Added(-1),
    "assigned": Added(3, [[1]]),
    "assigned to an unknown broker": Added(3, [[7]]),
    "assigned to nobody": Added(3, [[]]),
    "assigned to a broker twice": Added(3, [[1, 1]]),
    "too few assignments": Added(4, [[1]]),
    "too many assignments": Added(3, [[1], [1]]),
    "no assignments at all": Added(3, []),
}


@exchanges.cases(ADDED)
def add_partitions_to_two(script: Script, added: Added) -> None:
    topic = script.topic(partitions=2)
    script.send(create_partitions((topic.name, added.total, added.assignments)))


@exchanges.cases({"unknown": UNKNOWN.name, "empty": "", "not allowed": "a/b"})
def add_partitions_to_no_topic(script: Script, name: str) -> None:
    script.send(create_partitions((name, 3, None)))


@exchanges.one
def add_partitions_to_the_same_twice(script: Script) -> None:
    topic = script.topic()
    script.send(create_partitions((topic.name, 2, None), (topic.name, 3, None), (UNKNOWN.name, 2, None)))


@exchanges.one
def add_no_partitions(script: Script) -> None:
    script.send(create_partitions())
