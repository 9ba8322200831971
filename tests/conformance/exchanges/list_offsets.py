"""ListOffsets: by kind, by time, and what is refused."""

from __future__ import annotations

from typing import NamedTuple

from ottla.records.compression import GZIP
from ottla.wire.messages.list_offsets import ListOffsetsRequest
from ottla.wire.uuids import ZERO_UUID
from tests.conformance.batches import plain
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import UNKNOWN, delete_records, list_offsets
from tests.conformance.script import TIMESTAMP_MS, Script, Topic

exchanges = Exchanges("list_offsets")

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
KINDS = {
    "latest": -1, "earliest": -2, "max timestamp": -3, "earliest local": -4, "latest tiered": -5,
    "earliest pending upload": -6, "-7": -7, "the least": -(2**63),
}  # fmt: skip


@exchanges.versions((1, 2, 4, 6, 7, 10, 11))
def earliest_and_latest(script: Script, version: int) -> None:
    topic = script.topic(values=3)
    script.send(list_offsets(topic, EARLIEST), version)
    script.send(list_offsets(topic, LATEST), version)


@exchanges.cases(KINDS)
def a_kind(script: Script, timestamp: int) -> None:
    script.send(list_offsets(script.topic(values=3), timestamp))


@exchanges.cases(KINDS)
def a_kind_on_an_empty_partition(script: Script, timestamp: int) -> None:
    script.send(list_offsets(script.topic(), timestamp))


@exchanges.cases(
    {"-3 in 6": (-3, 6), "-3 in 7": (-3, 7), "-4 in 7": (-4, 7), "-4 in 8": (-4, 8), "-5 in 8": (-5, 8),
     "-5 in 9": (-5, 9), "-6 in 10": (-6, 10)}
)  # fmt: skip
def a_kind_and_the_version_it_came_with(script: Script, asked: tuple[int, int]) -> None:
    timestamp, version = asked
    script.send(list_offsets(script.topic(values=2), timestamp), version)


@exchanges.cases(KINDS)
def a_kind_after_deletion(script: Script, timestamp: int) -> None:
    topic = script.topic(values=3)
    script.ask(delete_records(topic, (0, 2)))
    script.send(list_offsets(topic, timestamp))


TIMES = {
    "0": 0, "before the first": TIMESTAMP_MS - 1, "of the first": TIMESTAMP_MS, "of the second": TIMESTAMP_MS + 1,
    "of the last": TIMESTAMP_MS + 2, "after the last": TIMESTAMP_MS + 3,
}  # fmt: skip


@exchanges.cases(TIMES)
def a_time(script: Script, timestamp: int) -> None:
    script.send(list_offsets(script.topic(values=3), timestamp))


@exchanges.versions((1, 4, 6))
def a_time_by_version(script: Script, version: int) -> None:
    script.send(list_offsets(script.topic(values=3), TIMESTAMP_MS + 1), version)


class Unordered(NamedTuple):
    codec: int
    timestamp: int


UNORDERED = {
    "between": Unordered(0, TIMESTAMP_MS + 15),
    "the highest": Unordered(0, MAX_TIMESTAMP),
    "between, gzip": Unordered(GZIP, TIMESTAMP_MS + 15),
    "the highest, gzip": Unordered(GZIP, MAX_TIMESTAMP),
}


@exchanges.cases(UNORDERED)
def timestamps_out_of_order(script: Script, asked: Unordered) -> None:
    topic = script.topic()
    timestamps = [TIMESTAMP_MS + shift_ms for shift_ms in (10, 30, 20, 30)]
    script.produce(topic, plain(4, timestamps=timestamps, codec=asked.codec))
    script.produce(topic, plain(1, timestamp=TIMESTAMP_MS + 5))
    script.send(list_offsets(topic, asked.timestamp))


@exchanges.one
def records_without_a_timestamp(script: Script) -> None:
    topic = script.topic()
    script.produce(topic, plain(2, timestamp=-1))
    script.send(list_offsets(topic, MAX_TIMESTAMP))
    script.send(list_offsets(topic, 0))


@exchanges.cases({"committed": 1, "2": 2})
def isolation(script: Script, isolation: int) -> None:
    topic = script.topic(values=2)
    for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, TIMESTAMP_MS):
        script.send(list_offsets(topic, timestamp, isolation=isolation))


@exchanges.cases({"current": 0, "ahead": 1, "-2": -2})
def leader_epoch(script: Script, epoch: int) -> None:
    script.send(list_offsets(script.topic(values=1), LATEST, epoch=epoch))


@exchanges.cases({"-2": -2, "its own": 1, "another": 7})
def replica_id(script: Script, replica_id: int) -> None:
    script.send(list_offsets(script.topic(values=1), LATEST, replica_id=replica_id))


@exchanges.versions((1, 6, 11))
def a_topic_that_is_not_there(script: Script, version: int) -> None:
    script.send(list_offsets(UNKNOWN, LATEST), version)


@exchanges.cases({"an unknown partition": (5,), "partition -1": (-1,), "one of two": (0, 5), "the same twice": (0, 0)})
def partitions(script: Script, partitions: tuple[int, ...]) -> None:
    script.send(list_offsets(script.topic(values=1), LATEST, partitions=partitions))


@exchanges.cases({"empty": "", "with a slash": "a/b"})
def a_bad_name(script: Script, name: str) -> None:
    script.send(list_offsets(Topic(name, ZERO_UUID), LATEST))


@exchanges.versions((1, 11))
def no_topics(script: Script, version: int) -> None:
    script.send(ListOffsetsRequest(replica_id=-1, topics=[]), version)
