"""DeleteRecords and OffsetForLeaderEpoch: where a log begins and where its epochs end."""

from __future__ import annotations

from typing import NamedTuple

from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.uuids import ZERO_UUID
from tests.conformance.batches import plain
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import UNKNOWN, delete_records, fetch_from, list_offsets, offset_for_epoch, produce
from tests.conformance.script import Script, Topic

exchanges = Exchanges("records")


@exchanges.versions((0, 1, 2))
def delete(script: Script, version: int) -> None:
    topic = script.topic(values=4)
    script.send(delete_records(topic, (0, 2)), version)
    script.send(list_offsets(topic, -2))
    script.send(fetch_from(topic, 2))


OFFSETS = {
    "0": 0, "1": 1, "the high watermark": 4, "-1 for the high watermark": -1, "beyond the high watermark": 5, "-2": -2,
    "the highest": 2**63 - 1,
}  # fmt: skip


@exchanges.cases(OFFSETS)
def delete_to(script: Script, offset: int) -> None:
    topic = script.topic(values=4)
    script.send(delete_records(topic, (0, offset)))
    script.send(list_offsets(topic, -2))


@exchanges.cases({"lower": 1, "the same": 2, "higher": 3})
def delete_after_deletion_to(script: Script, offset: int) -> None:
    topic = script.topic(values=4)
    script.ask(delete_records(topic, (0, 2)))
    script.send(delete_records(topic, (0, offset)))


@exchanges.one
def delete_within_a_batch(script: Script) -> None:
    topic = script.topic()
    script.produce(topic, plain(5))
    script.send(delete_records(topic, (0, 3)))
    script.send(fetch_from(topic, 3))


@exchanges.one
def delete_all_and_write_again(script: Script) -> None:
    topic = script.topic(values=2)
    script.send(delete_records(topic, (0, -1)))
    script.send(produce(topic, plain(1)))
    script.send(fetch_from(topic, 2))


@exchanges.one
def delete_from_an_empty_partition(script: Script) -> None:
    script.send(delete_records(script.topic(), (0, -1)))


@exchanges.cases({"compact": "compact", "compact and delete": "compact,delete"})
def delete_from_a_topic_with_cleanup(script: Script, policy: str) -> None:
    topic = script.topic(values=2, configs={"cleanup.policy": policy})
    script.send(delete_records(topic, (0, 1)))


@exchanges.cases(
    {"an unknown topic": (UNKNOWN, 0), "an unknown partition": (None, 5), "partition -1": (None, -1),
     "an empty name": (Topic("", ZERO_UUID), 0), "a name that is not allowed": (Topic("a/b", ZERO_UUID), 0)}
)  # fmt: skip
def delete_from(script: Script, target: tuple[Topic | None, int]) -> None:
    topic, partition = target
    script.send(delete_records(topic or script.topic(), (partition, 0)))


@exchanges.one
def delete_from_good_and_bad_partitions(script: Script) -> None:
    topic = script.topic(partitions=2, values=2)
    script.send(delete_records(topic, (0, 1), (1, 1), (2, 1)))


@exchanges.one
def delete_from_the_same_partition_twice(script: Script) -> None:
    script.send(delete_records(script.topic(values=3), (0, 1), (0, 2)))


@exchanges.cases({"no topics": False, "no partitions": True})
def delete_nothing(script: Script, with_topic: bool) -> None:
    partitions: list[DeleteRecordsPartition] = []
    topics = [DeleteRecordsTopic(name=script.topic().name, partitions=partitions)] if with_topic else []
    script.send(DeleteRecordsRequest(topics=topics, timeout_ms=1000))


@exchanges.versions((2, 3, 4))
def the_end_of_an_epoch(script: Script, version: int) -> None:
    script.send(offset_for_epoch(script.topic(values=3), 0), version)


class Asked(NamedTuple):
    epoch: int
    current: int = -1
    values: int = 3


EPOCHS = {
    "of an empty partition": Asked(0, values=0),
    "in the future": Asked(1),
    "-1": Asked(-1),
    "-2": Asked(-2),
    "the current epoch is right": Asked(0, current=0),
    "the current epoch is ahead": Asked(0, current=1),
    "the current epoch is -2": Asked(0, current=-2),
}


@exchanges.cases(EPOCHS)
def the_end_of_an_epoch_that_is(script: Script, asked: Asked) -> None:
    script.send(offset_for_epoch(script.topic(values=asked.values), asked.epoch, current_epoch=asked.current))


@exchanges.cases({"a debugging consumer": -2, "its own": 1, "another": 7})
def the_end_of_an_epoch_asked_by(script: Script, replica_id: int) -> None:
    script.send(offset_for_epoch(script.topic(values=1), 0, replica_id=replica_id))


@exchanges.cases({"an unknown topic": (UNKNOWN, 0), "an unknown partition": (None, 5), "partition -1": (None, -1)})
def the_end_of_an_epoch_in(script: Script, target: tuple[Topic | None, int]) -> None:
    topic, partition = target
    script.send(offset_for_epoch(topic or script.topic(), 0, partition=partition))


@exchanges.one
def the_end_of_an_epoch_after_deletion(script: Script) -> None:
    topic = script.topic(values=3)
    script.ask(delete_records(topic, (0, -1)))
    script.send(offset_for_epoch(topic, 0))


@exchanges.one
def the_end_of_an_epoch_of_the_same_partition_twice(script: Script) -> None:
    topic = script.topic(values=1)
    asked = [OffsetForLeaderPartition(partition=0, leader_epoch=epoch) for epoch in (0, 1)]
    topics = [OffsetForLeaderTopic(topic=topic.name, partitions=asked)]
    script.send(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics))


@exchanges.one
def the_end_of_no_epoch(script: Script) -> None:
    script.send(OffsetForLeaderEpochRequest(replica_id=-1, topics=[]))
