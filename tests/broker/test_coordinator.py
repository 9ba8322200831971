"""The shell of a coordinator, around a machine that only counts: appends, commits, timers, loading, starting over."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.broker.coordinators.coordinator import RELOADED_AFTER_SECONDS, Coordinator, coordinator_topic
from ottla.broker.loop.loop import Loop
from ottla.broker.loop.slices import run_to_end
from ottla.coordinator.operation import Operation, Reply
from ottla.log.errors import StorageFailed
from ottla.log.files import DiskFiles
from ottla.records.batch import BatchHeader, read_header
from ottla.records.build import build_batch
from ottla.records.read import read_batches
from ottla.replica.partition import Partition
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_topics import DeleteTopicState
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.transaction_records import TRANSACTION_RECORDS, TransactionLogKey, TransactionLogValue
from ottla.wire.schema import Message
from ottla.wire.uuids import ZERO_UUID
from tests.broker.opened_broker import OpenBroker

TOPIC = "__counts"


class Counter:
    """Counts by name; what a transaction counts is added when it commits."""

    record_types = TRANSACTION_RECORDS

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.pending: dict[int, list[str]] = {}
        self.waiting: list[Reply] = []
        self.expirations: list[Hashable] = []
        self.times_loaded = 0

    def replay(self, key: Message, value: Message | None, producer_id: int) -> None:
        assert isinstance(key, TransactionLogKey)
        if value is None:
            self.counts.pop(key.transactional_id, None)
        elif producer_id >= 0:
            self.pending.setdefault(producer_id, []).append(key.transactional_id)
        else:
            assert isinstance(value, TransactionLogValue)
            self.counts[key.transactional_id] = value.producer_id

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        for name in self.pending.pop(producer_id, []):
            if is_commit:
                self.counts[name] = self.counts.get(name, 0) + 1

    def loaded(self, operation: Operation) -> None:
        self.times_loaded += 1

    def expired(self, operation: Operation, timer: Hashable) -> None:
        self.expirations.append(timer)

    def pending_replies(self) -> list[Reply]:
        return self.waiting

    # Events

    def count(self, operation: Operation, reply: Reply, name: str) -> None:
        value = TransactionLogValue(
            producer_id=self.counts.get(name, 0) + 1,
            producer_epoch=0,
            transaction_timeout_ms=0,
            transaction_status=0,
            transaction_partitions=None,
            transaction_last_update_timestamp_ms=0,
            transaction_start_timestamp_ms=0,
        )
        operation.write(TransactionLogKey(transactional_id=name), value)
        operation.answer(reply, HeartbeatResponse(throttle_time_ms=self.counts.get(name, 0), error_code=0))

    def look(self, operation: Operation, reply: Reply, name: str) -> None:
        operation.answer(reply, HeartbeatResponse(throttle_time_ms=self.counts.get(name, 0), error_code=0))


class Counting:
    """A broker without network, a coordinator of counts, and the answers it gave."""

    def __init__(self, folder: Path, *, syncs: bool = False, linger_ms: int = 0) -> None:
        self.loop = Loop()
        self.broker = Broker(self.loop, DiskFiles(), str(folder), syncs=syncs)
        self.broker.open()
        self.coordinator = Coordinator(
            self.broker,
            TOPIC,
            lambda _partition: Counter(),
            lambda: coordinator_topic(TOPIC, 3, 1),
            linger_ms=lambda: linger_ms,
        )
        self.coordinator.start()
        self.answers: list[Any] = []

    def reply(self) -> Reply:
        return Reply(self.answers.append, lambda code: HeartbeatResponse(error_code=code))

    def count(self, name: str, producer: tuple[int, int] = (-1, -1)) -> None:
        """In a round of its own."""
        self.submit_count(name, producer)
        self.end_round()

    def submit_count(self, name: str, producer: tuple[int, int] = (-1, -1)) -> None:
        self.ensure_topic()
        reply = self.reply()
        self.coordinator.submit(name, reply, lambda machine, operation: machine.count(operation, reply, name), producer)

    def end_round(self) -> None:
        self.loop.call_soon(lambda: None)  # so that it does not wait
        self.loop.run_once()

    def ensure_topic(self) -> None:
        if not self.coordinator.partition_count:
            run_to_end(self.loop, self.coordinator.ensure_topic())

    def look(self, name: str) -> None:
        self.ensure_topic()
        reply = self.reply()
        self.coordinator.submit(name, reply, lambda machine, operation: machine.look(operation, reply, name))

    def partition(self, name: str) -> Partition:
        found = self.broker.topics.partition(TOPIC, self.coordinator.partition_of(name))
        assert found is not None
        return found

    def machine(self, name: str) -> Counter:
        shard = self.coordinator.shard_of(self.coordinator.partition_of(name))
        assert shard is not None
        return shard.machine

    def run_until_loaded(self) -> None:
        while self.coordinator.is_loading:
            self.loop.run_once()

    def run_until_reloaded(self, name: str) -> None:
        while self.coordinator.shard_of(self.coordinator.partition_of(name)) is None:
            self.loop.run_once()
        self.run_until_loaded()

    def stop(self) -> None:
        self.coordinator.stop()
        self.broker.stop()
        self.loop.close()

    def crash(self) -> None:
        self.coordinator.stop()
        self.broker.abandon()
        self.loop.close()


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Counting]:
    counting = Counting(tmp_path)
    yield counting
    counting.stop()


def codes(answers: list[Any]) -> list[int]:
    return [answer.error_code for answer in answers]


def test_the_topic_is_made_when_it_is_first_needed(counting: Counting) -> None:
    assert TOPIC not in counting.broker.topics.by_name
    counting.count("a")
    assert len(counting.broker.topics.by_name[TOPIC].partitions) == 3
    assert [answer.throttle_time_ms for answer in counting.answers] == [1]


def headers(partition: Partition) -> list[BatchHeader]:
    found = partition.log.read(0, 1 << 20, partition.log.end_offset)
    assert found is not None
    return [batch.header for batch in read_batches(found.read(), with_control=True)]


def batches(partition: Partition) -> list[tuple[int, int]]:
    """How many records each batch in the log has, and whose they are."""
    return [(header.count, header.producer_id) for header in headers(partition)]


def test_the_operations_of_a_round_are_one_batch_in_the_log(counting: Counting) -> None:
    counting.count("a")
    counting.submit_count("a")
    counting.submit_count("a")
    assert len(counting.answers) == 1
    counting.end_round()
    log = counting.partition("a").log
    assert log.end_offset == log.high_watermark == 3
    assert batches(counting.partition("a")) == [(1, -1), (2, -1)]
    assert [answer.throttle_time_ms for answer in counting.answers] == [1, 2, 3]


@pytest.mark.parametrize("linger_ms", [-1, 0, 5])
def test_what_is_gathered_is_written_in_time(tmp_path: Path, linger_ms: int) -> None:
    counting = Counting(tmp_path, linger_ms=linger_ms)
    try:
        counting.submit_count("a")
        counting.submit_count("a")
        if linger_ms > 0:
            counting.end_round()
            assert counting.answers == []
        while len(counting.answers) < 2:
            counting.loop.run_once()
        assert batches(counting.partition("a")) == [(2, -1)]
    finally:
        counting.stop()


def test_who_sees_what_is_not_written_yet_waits_for_it(counting: Counting) -> None:
    counting.submit_count("a")
    counting.look("a")
    assert counting.answers == []
    counting.end_round()
    assert [answer.throttle_time_ms for answer in counting.answers] == [1, 1]


def test_records_of_a_transaction_come_alone_and_behind_what_was_before(counting: Counting) -> None:
    counting.submit_count("a")
    counting.submit_count("a", producer=(7, 0))
    counting.submit_count("a")
    counting.end_round()
    assert batches(counting.partition("a")) == [(1, -1), (1, 7), (1, -1)]
    assert [answer.throttle_time_ms for answer in counting.answers] == [1, 1, 2]


def test_a_batch_does_not_become_larger_than_the_topic_allows(counting: Counting) -> None:
    counting.look("a")
    log = counting.partition("a").log
    log.reconfigure(dataclasses.replace(log.config, max_message_bytes=250))
    for _ in range(5):
        counting.submit_count("a")
    counting.end_round()
    sizes = [header.size for header in headers(counting.partition("a"))]
    assert len(sizes) == 3
    assert max(sizes) <= 250
    assert [answer.throttle_time_ms for answer in counting.answers] == [0, 1, 2, 3, 4, 5]


def test_a_clean_stop_writes_what_the_round_has_gathered(tmp_path: Path) -> None:
    counting = Counting(tmp_path)
    counting.submit_count("a")
    counting.stop()
    assert [answer.throttle_time_ms for answer in counting.answers] == [1]
    second = Counting(tmp_path)
    try:
        second.run_until_loaded()
        second.look("a")
        assert [answer.throttle_time_ms for answer in second.answers] == [1]
    finally:
        second.stop()


def test_a_read_writes_nothing(counting: Counting) -> None:
    counting.look("a")
    assert codes(counting.answers) == [0]
    assert counting.partition("a").log.end_offset == 0


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    first = Counting(tmp_path)
    for name in ("a", "b", "a", "c"):
        first.count(name)
    first.stop()
    second = Counting(tmp_path)
    try:
        second.look("a")
        assert codes(second.answers) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        second.run_until_loaded()
        for name in ("a", "b", "c"):
            second.look(name)
        assert [answer.throttle_time_ms for answer in second.answers[1:]] == [2, 1, 1]
        assert second.machine("a").times_loaded == 1
    finally:
        second.stop()


def test_a_record_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    first = Counting(tmp_path)
    first.count("a")
    partition = first.partition("a")
    for key, value in ((b"\0", b"x"), (b"\0\0\x7f", b"x"), (b"\0\0\0\x01a", b"\0")):
        bad = build_batch([value], keys=[key], timestamp=0)
        partition.writer.append(bad, read_header(bad), 0)
    first.count("a")
    first.stop()
    second = Counting(tmp_path)
    try:
        second.look("a")
        second.run_until_loaded()
        second.look("a")
        assert second.answers[-1].throttle_time_ms == 2
    finally:
        second.stop()


@pytest.mark.parametrize("is_commit", [True, False])
def test_records_of_a_transaction_count_when_it_ends(tmp_path: Path, is_commit: bool) -> None:
    first = Counting(tmp_path)
    first.count("a", producer=(7, 0))
    first.look("a")
    assert [answer.throttle_time_ms for answer in first.answers] == [0, 0]
    first.stop()
    second = Counting(tmp_path)
    try:
        second.run_until_loaded()
        shard = second.coordinator.shard_of(second.partition("a").index)
        assert shard is not None
        shard.replay_marker(7, is_commit)
        second.look("a")
        assert [answer.throttle_time_ms for answer in second.answers] == [1 if is_commit else 0]
    finally:
        second.stop()


def test_answers_wait_for_the_disk_and_keep_their_order(tmp_path: Path) -> None:
    counting = Counting(tmp_path, syncs=True)
    try:
        counting.count("a")
        counting.look("a")
        assert counting.answers == []  # a reader may not see what could still be lost
        while len(counting.answers) < 2:
            counting.loop.run_once()
        assert [answer.throttle_time_ms for answer in counting.answers] == [1, 1]
        assert counting.partition("a").log.recovery_point == 1
    finally:
        counting.stop()


def test_what_a_crash_left_off_the_disk_is_there_before_anybody_is_told(tmp_path: Path) -> None:
    first = Counting(tmp_path)
    first.count("a")
    first.crash()
    second = Counting(tmp_path, syncs=True)
    try:
        log = second.partition("a").log
        assert (log.recovery_point, log.end_offset) == (1, 1)
        second.run_until_loaded()
        second.look("a")
        while not second.answers:
            second.loop.run_once()
        assert [answer.throttle_time_ms for answer in second.answers] == [1]
    finally:
        second.stop()


def test_a_log_whose_disk_failed_is_not_loaded_again(tmp_path: Path) -> None:
    """It may hold what was never kept."""
    counting = Counting(tmp_path, syncs=True)
    try:
        counting.count("a")
        counting.partition("a").log.stopped(OSError(errno.EIO, "the disk is broken"))
        while not counting.answers:
            counting.loop.run_once()
        counting.look("a")
        passed: list[bool] = []
        counting.loop.call_later(RELOADED_AFTER_SECONDS * 1.1, lambda: passed.append(True))
        while not passed:
            counting.loop.run_once()
        counting.look("a")
        assert codes(counting.answers) == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
        assert counting.coordinator.shards() == []
    finally:
        counting.crash()


def test_a_log_that_cannot_be_read_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.coordinators.shard.LOADED_AGAIN_AFTER_SECONDS", 0.001)
    first = Counting(tmp_path)
    first.count("a")
    first.stop()
    second = Counting(tmp_path)
    try:
        with monkeypatch.context() as patch:

            def broken(*_arguments: object) -> None:
                raise OSError(errno.EIO, "the disk is broken")

            patch.setattr(second.partition("a").log, "read", broken)
            for _ in range(3):
                second.loop.run_once()
            second.look("a")
            assert codes(second.answers) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        second.run_until_loaded()
        second.look("a")
        assert second.answers[-1].throttle_time_ms == 1
    finally:
        second.stop()


def test_a_failed_append_refuses_and_starts_over(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    counting.count("a")
    failed_machine = counting.machine("a")
    waiting = counting.reply()
    failed_machine.waiting.append(waiting)

    def full(*_arguments: object, **_options: object) -> None:
        raise StorageFailed(f"{errno.ENOSPC}: no space is left")

    with monkeypatch.context() as patch:
        patch.setattr(counting.partition("a").log, "append", full)
        counting.submit_count("a")
        counting.submit_count("a", producer=(7, 0))
        counting.end_round()
    not_available = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes(counting.answers) == [0, not_available, not_available, ErrorCode.NOT_COORDINATOR]
    counting.run_until_reloaded("a")
    assert counting.machine("a") is not failed_machine
    counting.count("a")
    assert counting.answers[-1].throttle_time_ms == 2  # what was refused left no trace


def test_a_mistake_in_a_machine_refuses_and_starts_over(counting: Counting) -> None:
    counting.count("a")

    def wrong(machine: Counter, operation: Operation) -> None:
        machine.counts["a"] = 1000
        raise ZeroDivisionError

    counting.submit_count("a")
    counting.coordinator.submit("a", counting.reply(), wrong)
    assert codes(counting.answers) == [0, 0, ErrorCode.UNKNOWN_SERVER_ERROR]
    counting.run_until_reloaded("a")
    counting.look("a")
    assert counting.answers[-1].throttle_time_ms == 2  # what came before the mistake is kept


def test_an_answer_that_cannot_be_given_does_not_keep_the_others(counting: Counting) -> None:
    def cannot_be_written(_answer: object) -> None:
        raise ZeroDivisionError

    def answer_both(_machine: Counter, operation: Operation) -> None:
        for reply in (Reply(cannot_be_written, lambda code: code), counting.reply()):
            operation.answer(reply, HeartbeatResponse(error_code=0))

    counting.ensure_topic()
    counting.coordinator.submit("a", counting.reply(), answer_both)
    assert codes(counting.answers) == [0]


def test_timers_can_be_moved_both_ways_and_cancelled(counting: Counting) -> None:
    counting.look("a")
    shard = counting.coordinator.shard_of(counting.partition("a").index)
    assert shard is not None

    def set_all(operation: Operation) -> None:
        for name in ("kept", "later", "sooner", "gone"):
            operation.set_timer(name, 60_000 if name == "sooner" else 0)

    shard.run(set_all)
    shard.run(lambda operation: operation.set_timer("later", 60_000))
    shard.run(lambda operation: operation.set_timer("sooner", 1))
    shard.run(lambda operation: operation.cancel_timer("gone"))
    while len(shard.machine.expirations) < 2:
        counting.loop.run_once()
    counting.loop.call_later(0.002, lambda: None)
    counting.loop.run_once()
    assert shard.machine.expirations == ["kept", "sooner"]


def test_a_topic_that_was_deleted_begins_anew(counting: Counting) -> None:
    counting.count("a")
    run_to_end(counting.loop, counting.broker.topic_requests.delete([DeleteTopicState(name=TOPIC, topic_id=ZERO_UUID)]))
    counting.look("a")
    assert [answer.throttle_time_ms for answer in counting.answers] == [1, 0]


def test_who_waits_is_refused_when_the_topic_is_deleted(counting: Counting) -> None:
    counting.look("a")
    machine = counting.machine("a")
    machine.waiting.append(counting.reply())
    shard = counting.coordinator.shard_of(counting.partition("a").index)
    assert shard is not None

    def set_timer(_topic: str) -> None:
        """Just before the coordinator learns of it."""
        shard.run(lambda operation: operation.set_timer("late", 0))

    counting.broker.topics._watchers.insert(0, set_timer)
    run_to_end(counting.loop, counting.broker.topic_requests.delete([DeleteTopicState(name=TOPIC, topic_id=ZERO_UUID)]))
    assert codes(counting.answers) == [0, ErrorCode.NOT_COORDINATOR]
    counting.loop.call_later(0.001, lambda: None)
    counting.loop.run_once()
    assert machine.expirations == []


def test_a_topic_of_the_broker_s_own_that_cannot_be_made_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = OpenBroker(tmp_path, offsets_topic_segment_bytes="1000")
    assert [run_to_end(opened.loop, opened.broker.groups.ensure_topic()) for _ in range(3)] == [0, 0, 0]
    told = [record for record in caplog.records if "cannot be made" in record.getMessage()]
    assert len(told) == 1
    opened.stop()
