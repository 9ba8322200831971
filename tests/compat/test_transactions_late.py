"""Requests of an old transaction that arrive late: clients of version 2 are safe from them, those of version 1 not.

A request may be delayed between a client and its broker while the client goes on, on another connection, to its
next transaction. The requests here are raw, so that the delay is exactly where it hurts. docs/transactions.md
tells the reasons.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ottla.records.build import build_batch
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.schema import Request
from tests.compat.committed_reader import CommittedReader
from tests.compat.killable import KillableBroker
from tests.conformance.requests import produce
from tests.conformance.script import TIMESTAMP_MS, Script, Topic

PRODUCE_2, END_2 = 13, 5
PRODUCE_1, END_1, ADD_1 = 11, 4, 3
NOT_NOW = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
COMMIT, ABORT = True, False
SETTLE_S = 10.0


class Identity(NamedTuple):
    producer_id: int
    epoch: int


class RawProducer:
    """Sends what it is told, as any version of a client would, and keeps nothing."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.transactional_id = script.name("id")
        self._patiently(FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id]))

    def _patiently(self, request: Request, version: int | None = None) -> object:
        """Asks again while the coordinator is not ready, which a client would do too."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            answer = self._script.ask(request, version)
            code = answer.coordinators[0].error_code if hasattr(answer, "coordinators") else answer.error_code
            if code not in NOT_NOW:
                assert not code, answer
                return answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.02)

    def init(self) -> Identity:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        given = self._patiently(request)
        return Identity(given.producer_id, given.producer_epoch)  # type: ignore[attr-defined]

    def add(self, identity: Identity, topic: Topic) -> None:
        """What a client of version 1 says before it writes to a partition."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic.name, partitions=[0])],
        )
        deadline = time.monotonic() + SETTLE_S
        while True:
            [result] = self._script.ask(request, ADD_1).results_by_topic_v3_and_below
            [partition] = result.results_by_partition
            if partition.partition_error_code not in NOT_NOW:
                assert partition.partition_error_code == 0
                return
            assert time.monotonic() < deadline, partition
            time.sleep(0.02)

    def produce(self, identity: Identity, topic: Topic, value: str, sequence: int, version: int) -> int:
        """The error code."""
        batch = build_batch(
            [value.encode()],
            timestamp=TIMESTAMP_MS,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce(topic, batch, acks=-1, transactional_id=self.transactional_id)
        deadline = time.monotonic() + SETTLE_S
        while True:
            [partition] = self._script.ask(request, version).responses[0].partition_responses
            if partition.error_code not in NOT_NOW:
                return int(partition.error_code)
            assert time.monotonic() < deadline, partition
            time.sleep(0.02)

    def end(self, identity: Identity, commits: bool, version: int) -> Identity:
        answer = self._patiently(self._end_request(identity, commits), version)
        if version < END_2:
            return identity
        return Identity(answer.producer_id, answer.producer_epoch)  # type: ignore[attr-defined]

    def end_late(self, identity: Identity, commits: bool, version: int) -> int:
        """The error code."""
        answer = self._script.ask(self._end_request(identity, commits), version, on="late")
        return int(answer.error_code)

    def _end_request(self, identity: Identity, commits: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=commits,
        )


@pytest.fixture
def script(killable: KillableBroker) -> Iterator[Script]:
    with Script(killable.address, uuid.uuid4().hex) as script:
        yield script


@pytest.fixture
def written(script: Script) -> Topic:
    return script.topic("written")


@pytest.fixture
def producer(script: Script) -> RawProducer:
    return RawProducer(script)


@pytest.fixture
def reader(killable: KillableBroker) -> CommittedReader:
    return CommittedReader(killable.bootstrap)


@pytest.mark.parametrize("late", [COMMIT, ABORT])
def test_version_2_a_late_end_does_not_end_a_later_transaction(
    producer: RawProducer, written: Topic, reader: CommittedReader, late: bool
) -> None:
    """The client sent its end twice, because the first was not answered in time."""
    first = producer.init()
    assert producer.produce(first, written, "first", 0, PRODUCE_2) == 0
    second = producer.end(first, late, END_2)
    assert second == Identity(first.producer_id, first.epoch + 1)
    assert producer.produce(second, written, "second", 0, PRODUCE_2) == 0
    assert producer.end_late(first, late, END_2) == ErrorCode.PRODUCER_FENCED
    producer.end(second, not late, END_2)
    assert reader.values(written.name) == (["first"] if late is COMMIT else ["second"])


def test_version_2_an_end_that_is_sent_twice_is_answered_alike(producer: RawProducer, written: Topic) -> None:
    first = producer.init()
    assert producer.produce(first, written, "first", 0, PRODUCE_2) == 0
    second = producer.end(first, COMMIT, END_2)
    assert producer.end(first, COMMIT, END_2) == second


def test_version_2_a_late_write_does_not_land_in_a_later_transaction(
    producer: RawProducer, written: Topic, reader: CommittedReader
) -> None:
    first = producer.init()
    assert producer.produce(first, written, "first", 0, PRODUCE_2) == 0
    second = producer.end(first, ABORT, END_2)
    assert reader.values(written.name) == []  # which waits for the marker: before it the first one goes on
    assert producer.produce(first, written, "late", 1, PRODUCE_2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.produce(second, written, "second", 0, PRODUCE_2) == 0
    assert producer.produce(first, written, "late", 1, PRODUCE_2) == ErrorCode.INVALID_PRODUCER_EPOCH
    producer.end(second, COMMIT, END_2)
    assert reader.values(written.name) == ["second"]
    assert reader.values(written.name, "read_uncommitted") == ["first", "second"]


def test_version_2_a_late_write_to_another_partition_does_not_land_either(
    script: Script, producer: RawProducer, written: Topic, reader: CommittedReader
) -> None:
    """That one knows nothing of the producer yet: it is the coordinator who knows that the epoch is over."""
    other = script.topic("other")
    first = producer.init()
    assert producer.produce(first, written, "first", 0, PRODUCE_2) == 0
    second = producer.end(first, ABORT, END_2)
    assert producer.produce(second, written, "second", 0, PRODUCE_2) == 0
    assert producer.produce(first, other, "late", 0, PRODUCE_2) == ErrorCode.INVALID_PRODUCER_EPOCH
    producer.end(second, COMMIT, END_2)
    assert reader.values(other.name, "read_uncommitted") == []


def test_version_1_a_late_end_ends_a_later_transaction(
    producer: RawProducer, written: Topic, reader: CommittedReader
) -> None:
    """All transactions of such a client have one epoch, so that nothing tells the ends of two apart."""
    identity = producer.init()
    producer.add(identity, written)
    assert producer.produce(identity, written, "first", 0, PRODUCE_1) == 0
    producer.end(identity, COMMIT, END_1)
    producer.add(identity, written)
    assert producer.produce(identity, written, "half of the second", 1, PRODUCE_1) == 0
    assert producer.end_late(identity, COMMIT, END_1) == 0
    assert reader.values(written.name) == ["first", "half of the second"]


def test_version_1_a_late_write_lands_in_a_later_transaction(
    producer: RawProducer, written: Topic, reader: CommittedReader
) -> None:
    identity = producer.init()
    producer.add(identity, written)
    assert producer.produce(identity, written, "first", 0, PRODUCE_1) == 0
    producer.end(identity, ABORT, END_1)
    producer.add(identity, written)
    assert producer.produce(identity, written, "late, of the first", 1, PRODUCE_1) == 0
    assert producer.produce(identity, written, "second", 2, PRODUCE_1) == 0
    producer.end(identity, COMMIT, END_1)
    assert reader.values(written.name) == ["late, of the first", "second"]


def test_version_1_a_late_write_between_transactions_is_refused(
    producer: RawProducer, written: Topic, reader: CommittedReader
) -> None:
    """The broker asks the coordinator before the first write of a transaction: no write hangs without an end."""
    identity = producer.init()
    producer.add(identity, written)
    assert producer.produce(identity, written, "first", 0, PRODUCE_1) == 0
    producer.end(identity, ABORT, END_1)
    assert reader.values(written.name) == []  # which waits for the marker
    assert producer.produce(identity, written, "late", 1, PRODUCE_1) == ErrorCode.TRANSACTION_ABORTABLE
    assert producer.produce(identity, written, "late", 1, PRODUCE_1 - 1) == ErrorCode.INVALID_TXN_STATE
    assert reader.values(written.name, "read_uncommitted") == ["first"]
