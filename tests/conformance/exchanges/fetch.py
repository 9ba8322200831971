"""Fetch: reading, waiting, limits, leader epochs and who asks. Sessions have a group of their own."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.records.compression import GZIP
from ottla.wire.messages.fetch import FetchPartition, ReplicaState
from ottla.wire.uuids import ZERO_UUID
from tests.conformance.batches import plain
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import (
    UNKNOWN,
    delete_records,
    delete_topics,
    fetch,
    fetch_from,
    fetch_partition,
    produce,
)
from tests.conformance.script import Script, Topic

exchanges = Exchanges("fetch")

VERSIONS = (4, 5, 7, 9, 10, 11, 12, 13, 15, 16, 17, 18)
BY_NAME = 12


@exchanges.versions(VERSIONS)
def from_the_beginning(script: Script, version: int) -> None:
    script.send(fetch_from(script.topic(values=3)), version)


@exchanges.versions((4, 12, 18))
def an_empty_partition(script: Script, version: int) -> None:
    script.send(fetch_from(script.topic()), version)


@exchanges.versions((4, 7, 12, 13, 17, 18))
def a_topic_that_is_not_there(script: Script, version: int) -> None:
    script.send(fetch_from(UNKNOWN), version)


@exchanges.cases({"the second record": 1, "the end": 3, "beyond the end": 4, "far beyond": 10**12, "-1": -1, "-2": -2})
def offset(script: Script, offset: int) -> None:
    script.send(fetch_from(script.topic(values=3), offset))


@exchanges.cases({"by name": BY_NAME, "by id": 17})
def an_offset_out_of_range_is_answered_at_once(script: Script, version: int) -> None:
    script.send(fetch_from(script.topic(), 5, min_bytes=1, max_wait_ms=60_000), version)


@exchanges.cases({"below it": 0, "at it": 2, "behind it": 3})
def log_start_after_deletion(script: Script, offset: int) -> None:
    topic = script.topic(values=4)
    script.ask(delete_records(topic, (0, 2)))
    script.send(fetch_from(topic, offset))


@exchanges.one
def the_middle_of_a_batch(script: Script) -> None:
    topic = script.topic()
    script.produce(topic, plain(5))
    script.send(fetch_from(topic, 3))


@exchanges.one
def the_middle_of_a_compressed_batch(script: Script) -> None:
    topic = script.topic()
    script.produce(topic, plain(5, codec=GZIP))
    script.send(fetch_from(topic, 3))


BAD_TARGETS: dict[str, tuple[Topic | None, int, int]] = {
    "an unknown partition": (None, 5, 17),
    "an unknown partition by name": (None, 5, BY_NAME),
    "partition -1": (None, -1, 17),
    "a zero id": (Topic("", ZERO_UUID), 0, 17),
    "an empty name": (Topic("", ZERO_UUID), 0, BY_NAME),
    "a name that is not allowed": (Topic("a/b", ZERO_UUID), 0, BY_NAME),
}


@exchanges.cases(BAD_TARGETS)
def a_bad_target(script: Script, target: tuple[Topic | None, int, int]) -> None:
    topic, partition, version = target
    script.send(fetch({topic or script.topic(): [fetch_partition(partition=partition)]}), version)


@exchanges.one
def the_id_of_a_deleted_topic(script: Script) -> None:
    topic = script.topic(values=1)
    script.ask(delete_topics(topic.name))
    script.settle(
        fetch_from(topic), 17, until=lambda answer: answer.responses[0].partitions[0].error_code not in (0, 3, 6)
    )


@exchanges.one
def good_and_bad_partitions_together(script: Script) -> None:
    topic = script.topic(partitions=3, values=2)
    partitions = [fetch_partition(), fetch_partition(9, partition=1), fetch_partition(partition=2)]
    script.send(fetch({topic: [*partitions, fetch_partition(partition=7)], UNKNOWN: [fetch_partition()]}))


@exchanges.versions((12, 17))
def the_same_partition_twice(script: Script, version: int) -> None:
    topic = script.topic(values=2)
    script.send(fetch({topic: [fetch_partition(0), fetch_partition(1)]}), version)


@exchanges.versions((4, 12, 18))
def no_topics(script: Script, version: int) -> None:
    script.send(fetch({}), version)


@exchanges.one
def a_topic_without_partitions(script: Script) -> None:
    script.send(fetch({script.topic(): []}))


LIMITS: dict[str, tuple[dict[str, Any], int]] = {
    "max bytes 0": ({"max_bytes": 0}, 1 << 20),
    "max bytes 1": ({"max_bytes": 1}, 1 << 20),
    "max bytes -1": ({"max_bytes": -1}, 1 << 20),
    "partition max bytes 0": ({}, 0),
    "partition max bytes 1": ({}, 1),
    "partition max bytes -1": ({}, -1),
    "both 1": ({"max_bytes": 1}, 1),
    "both 100": ({"max_bytes": 100}, 100),
    "partition max bytes 200": ({}, 200),
    "max bytes 200": ({"max_bytes": 200}, 1 << 20),
}


@exchanges.cases(LIMITS)
def limits(script: Script, limits: tuple[dict[str, Any], int]) -> None:
    options, partition_max_bytes = limits
    topic = script.topic(values=4)
    script.send(fetch({topic: [fetch_partition(max_bytes=partition_max_bytes)]}, **options))


@exchanges.cases({"1": 1, "100": 100, "200": 200})
def max_bytes_over_two_partitions(script: Script, max_bytes: int) -> None:
    """The first partition that has records gives its first batch, the later ones only what fits."""
    topic = script.topic(partitions=2, values=2)
    script.produce(topic, plain(1), 1)
    script.send(fetch({topic: [fetch_partition(), fetch_partition(partition=1)]}, max_bytes=max_bytes))


class Epochs(NamedTuple):
    current: int = -1
    last: int = -1
    offset: int = 0


EPOCHS = {
    "the current one": Epochs(current=0),
    "ahead": Epochs(current=1),
    "-2": Epochs(current=-2),
    "last fetched is the current one": Epochs(current=0, last=0),
    "last fetched is ahead": Epochs(current=0, last=1),
    "last fetched is ahead and the offset beyond the end": Epochs(current=0, last=1, offset=9),
    "last fetched and beyond the end": Epochs(current=0, last=0, offset=9),
    "last fetched at the end": Epochs(current=0, last=0, offset=2),
}


@exchanges.cases(EPOCHS)
def leader_epoch(script: Script, epochs: Epochs) -> None:
    partition = fetch_partition(epochs.offset, epoch=epochs.current, last_epoch=epochs.last)
    script.send(fetch({script.topic(values=2): [partition]}))


@exchanges.cases({"uncommitted": 0, "committed": 1, "2": 2, "-1": -1})
def isolation(script: Script, level: int) -> None:
    script.send(fetch_from(script.topic(values=2), isolation_level=level))


@exchanges.cases({"its own id": 1, "another broker": 7, "a debugging consumer": -2})
def replica_id(script: Script, replica_id: int) -> None:
    script.send(fetch_from(script.topic(values=1), replica_id=replica_id), 14)


@exchanges.cases({"its own id": 1, "another broker": 7})
def replica_state(script: Script, replica_id: int) -> None:
    state = ReplicaState(replica_id=replica_id, replica_epoch=0)
    script.send(fetch_from(script.topic(values=1), replica_state=state), 17)


@exchanges.one
def a_rack(script: Script) -> None:
    script.send(fetch_from(script.topic(values=1), rack_id="somewhere"))


@exchanges.one
def the_id_of_another_cluster(script: Script) -> None:
    script.send(fetch_from(script.topic(values=1), cluster_id="another"))


@exchanges.cases({"by name": 4, "by id": 18})
def waiting_until_a_record_comes(script: Script, version: int) -> None:
    topic = script.topic()
    waiting = script.begin(fetch_from(topic, min_bytes=1, max_wait_ms=60_000), version, on="waiting")
    script.still_waits(waiting)
    script.send(produce(topic, plain(1)))
    script.finish(waiting)


@exchanges.one
def waiting_until_there_is_enough(script: Script) -> None:
    topic = script.topic()
    waiting = script.begin(fetch_from(topic, min_bytes=150, max_wait_ms=60_000), on="waiting")
    script.send(produce(topic, plain(1)))
    script.still_waits(waiting)
    script.send(produce(topic, plain(1)))
    script.finish(waiting)


@exchanges.cases({"nothing comes": 0, "too little is there": 1})
def waiting_ends_with_the_time(script: Script, values: int) -> None:
    script.send(fetch_from(script.topic(values=values), min_bytes=1000, max_wait_ms=150))


@exchanges.cases({"no time": (0, 1), "nothing asked for": (60_000, 0), "negative time": (-1, 1)})
def not_waiting(script: Script, waiting: tuple[int, int]) -> None:
    max_wait_ms, min_bytes = waiting
    script.send(fetch_from(script.topic(), max_wait_ms=max_wait_ms, min_bytes=min_bytes))


@exchanges.one
def waiting_ends_when_the_topic_is_deleted(script: Script) -> None:
    topic = script.topic()
    waiting = script.begin(fetch_from(topic, min_bytes=1, max_wait_ms=5_000), on="waiting")
    script.still_waits(waiting)
    script.send(delete_topics(topic.name))
    script.finish(waiting)


@exchanges.one
def a_later_request_waits_for_the_fetch_before_it(script: Script) -> None:
    topic = script.topic()
    first = script.begin(fetch_from(topic, min_bytes=1, max_wait_ms=200))
    second = script.begin(fetch_from(topic))
    script.finish(first)
    script.finish(second)


@exchanges.one
def enough_in_one_of_two_partitions(script: Script) -> None:
    topic = script.topic(partitions=2, values=1)
    partitions: list[FetchPartition] = [fetch_partition(), fetch_partition(partition=1)]
    script.send(fetch({topic: partitions}, min_bytes=1, max_wait_ms=60_000))
