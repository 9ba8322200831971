"""ListTransactions, DescribeTransactions, and WriteTxnMarkers from a client."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import fetch_from, list_offsets
from tests.conformance.script import Script
from tests.conformance.transaction_requests import (
    ABORT,
    RESULTS,
    Producer,
    add_partitions,
    describe_producers,
    describe_transactions,
    ended,
    list_transactions,
    marker,
    ready_producer,
    write,
    written,
)

exchanges = Exchanges("transaction_admin")


def several_transactions(script: Script) -> dict[str, Producer]:
    """One of each kind, by label."""
    topic = script.topic(partitions=2)
    labels = ("empty", "open", "committed", "aborted")
    producers = {label: ready_producer(script, label) for label in labels}
    for label in ("open", "committed", "aborted"):
        script.ask(add_partitions(producers[label], {topic.name: [0, 1]}))
    ended(script, producers["committed"])
    ended(script, producers["aborted"], ABORT)
    return producers


@exchanges.versions((0, 1, 2))
def list_all(script: Script, version: int) -> None:
    several_transactions(script)
    script.send(list_transactions(), version, only_own=True)


STATES: dict[str, Sequence[str]] = {
    "Ongoing": ["Ongoing"],
    "in small letters": ["ongoing"],
    "two": ["Empty", "CompleteCommit"],
    "those of a moment": ["PrepareCommit", "PrepareAbort", "PrepareEpochFence", "Dead"],
    "unknown": ["Sleeping", "Waking"],
    "one known and one unknown": ["Sleeping", "CompleteAbort"],
    "empty": [""],
}


@exchanges.cases(STATES)
def list_by_states_that_are(script: Script, states: Sequence[str]) -> None:
    several_transactions(script)
    for version in (0, 2):
        script.send(list_transactions(states=states), version, only_own=True)


@exchanges.one
def list_by_producers(script: Script) -> None:
    producers = several_transactions(script)
    ids = [producers["open"].id, producers["aborted"].id]
    script.send(list_transactions(producers=ids), 0, only_own=True)
    script.send(list_transactions(producers=[*ids, 123_456_789]), only_own=True)
    script.send(list_transactions(producers=[123_456_789, -1]), only_own=True)
    script.send(list_transactions(producers=ids, states=["Ongoing"]), only_own=True)


@exchanges.cases({"0 ms": 0, "-5 ms": -5, "an hour": 3_600_000})
def list_by_a_duration_of(script: Script, duration_ms: int) -> None:
    several_transactions(script)
    for version in (1, 2):
        script.send(list_transactions(duration_ms=duration_ms), version, only_own=True)


PATTERNS = {
    "all": ".*",
    "a beginning": "co.*",
    "a part": "mitt",
    "an alternative": "(open|empty)-.*",
    "empty": "",
    "a bracket too few": "(open",
    "a star too many": "*",
    "a look ahead": "(?=open).*",
}


@exchanges.cases(PATTERNS)
def list_by_a_pattern_that_is(script: Script, pattern: str) -> None:
    several_transactions(script)
    script.send(list_transactions(pattern=pattern), only_own=True)


@exchanges.one
def describe_several(script: Script) -> None:
    producers = several_transactions(script)
    ids = [producer.transactional_id for producer in producers.values()]
    script.send(describe_transactions(*ids, script.transactional_id("nobody"), ""))


@exchanges.one
def describe_none(script: Script) -> None:
    script.transactional_id()
    script.send(describe_transactions())


@exchanges.one
def describe_the_same_twice(script: Script) -> None:
    producer = ready_producer(script)
    script.send(describe_transactions(producer.transactional_id, producer.transactional_id))


@exchanges.cases({f"{name}, version {version}": (result, version) for name, result in RESULTS.items()
                  for version in (1, 2)})  # fmt: skip
def a_marker_of_nobody(script: Script, case: tuple[bool, int]) -> None:
    committed, version = case
    topic = script.topic()
    nobody = Producer("", 900_001, 3)
    script.send(marker(nobody, {topic.name: [0, 1], "nobody-made-this": [0]}, committed=committed), version)
    script.send(fetch_from(topic, isolation_level=1), 12)
    script.send(describe_producers({topic.name: [0]}))


@exchanges.cases(RESULTS)
def a_marker_ends_an_open_transaction(script: Script, committed: bool) -> None:
    producer, topic = ready_producer(script), script.topic(configs={"segment.ms": str(2**63 - 1)})
    written(script, producer, topic)
    script.send(marker(producer, {topic.name: [0]}, committed=committed))
    script.send(list_offsets(topic, -1, isolation=1))
    script.send(fetch_from(topic, isolation_level=1), 12)
    script.send(describe_transactions(producer.transactional_id))
    script.send(write(producer, topic, 1), 12)


MARKED = {
    "the same epoch": (0, 0),
    "a later epoch": (1, 0),
    "an earlier epoch": (-1, 0),
    "a later coordinator": (0, 5),
    "an earlier coordinator": (0, -1),
}


@exchanges.cases(MARKED)
def a_marker_with(script: Script, case: tuple[int, int]) -> None:
    shift, coordinator_epoch = case
    producer, topic = ready_producer(script), script.topic()
    producer = ended(script, producer, ABORT)
    written(script, producer, topic)
    changed = producer._replace(epoch=producer.epoch + shift)
    for transaction_version in (0, 1, 2):
        request = marker(
            changed,
            {topic.name: [0]},
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        script.send(request, 2)
    script.send(describe_producers({topic.name: [0]}))


@exchanges.one
def markers_of_two_coordinators(script: Script) -> None:
    topic = script.topic()
    nobody = Producer("", 900_002, 0)
    for coordinator_epoch in (5, 5, 4, 6):
        script.send(marker(nobody, {topic.name: [0]}, coordinator_epoch=coordinator_epoch), 1)


@exchanges.one
def no_markers(script: Script) -> None:
    for version in (1, 2):
        script.send(WriteTxnMarkersRequest(markers=[]), version, within_s=1.0)


@exchanges.one
def a_marker_without_partitions(script: Script) -> None:
    topic = script.topic()
    script.send(marker(Producer("", 900_003, 0), {}), 1, within_s=1.0)
    script.send(marker(Producer("", 900_003, 0), {topic.name: []}), 1, within_s=1.0)
