"""Acknowledgements: at the end of a round, and on the disk where the broker or the topic asks for that."""

from __future__ import annotations

import errno
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

import ottla.testing
from ottla.broker.loop.loop import Loop, Timer
from ottla.broker.loop.system import Finished
from ottla.broker.rounds import Rounds
from ottla.client import Admin, Producer
from ottla.log.epochs import LeaderEpochs
from ottla.log.errors import LogError, StorageFailed
from ottla.log.files import DiskFiles
from ottla.log.flusher import LogFlusher
from ottla.log.topic_config import TopicConfig
from ottla.records.build import build_batch
from ottla.replica.machine import ALL
from ottla.replica.partition import Partition
from ottla.testing.files import Effect, SimulatedFiles
from tests.log.writing import SMALL, new_log, served_batches
from tests.replica.shell import sole_leader

LEADER = 1
WAIT_S = 20.0


class Waiting:
    def __init__(self) -> None:
        self.told: list[tuple[str, LogError | None]] = []

    def committed(self, token: str, failure: LogError | None) -> None:
        self.told.append((token, failure))


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def make(
    loop: Loop, config: TopicConfig = SMALL, files: SimulatedFiles | None = None, *, waits_for_disk: bool = False
) -> Partition:
    rounds = Rounds(loop, waits_for_disk=waits_for_disk)
    return sole_leader(new_log(files, config), rounds, node_id=LEADER, topic="topic")


def produce(partition: Partition, count: int = 1, size_bytes: int = 5) -> int:
    batch = build_batch([b"v" * size_bytes] * count, timestamp=0)
    placed = partition.writer.produce(batch, version=12, now_ms=0)
    return placed[1]


def turn(loop: Loop) -> None:
    loop.call_soon(lambda: None)
    loop.run_once()


def run_until(loop: Loop, is_done: Callable[[], object]) -> None:
    while not is_done():
        loop.run_once()


def has_told(waiting: Waiting, count: int) -> bool:
    return len(waiting.told) >= count


def test_the_page_cache_is_enough_where_nobody_asks_for_more(loop: Loop) -> None:
    partition, waiting = make(loop), Waiting()
    for acks in (ALL, LEADER):
        partition.wait(produce(partition), acks, waiting, f"acks {acks}")
    assert waiting.told == []  # before the end of the round
    turn(loop)
    assert sorted(waiting.told) == [("acks -1", None), ("acks 1", None)]
    assert partition.log.recovery_point == 0


@pytest.mark.parametrize("config", [TopicConfig(flush_messages=1), TopicConfig(flush_ms=0)])
@pytest.mark.parametrize("acks", [ALL, LEADER])
def test_each_append_waits_where_none_may_be_lost(loop: Loop, config: TopicConfig, acks: int) -> None:
    partition, waiting = make(loop, config), Waiting()
    for number in range(3):
        end_offset = produce(partition)
        partition.wait(end_offset, acks, waiting, "")
        turn(loop)
        assert len(waiting.told) == number
        assert not partition.is_committed(end_offset)
        run_until(loop, functools.partial(has_told, waiting, number + 1))
        assert partition.log.recovery_point == end_offset
        assert partition.is_committed(end_offset)
    assert [failure for _, failure in waiting.told] == [None] * 3


def test_all_that_waits_for_the_disk_is_brought_there_together(loop: Loop) -> None:
    rounds, waiting, jobs = Rounds(loop, waits_for_disk=True), Waiting(), list[object]()
    run_blocking = loop.run_blocking

    def note(job: Callable[[], None], done: Finished) -> None:
        jobs.append(job)
        run_blocking(job, done)

    loop.run_blocking = note  # type: ignore[method-assign]
    partitions = [sole_leader(new_log(), rounds, node_id=LEADER, index=index) for index in range(3)]
    for partition in partitions:
        partition.wait(produce(partition), ALL, waiting, partition.name)
    run_until(loop, lambda: len(waiting.told) == 3)
    assert len(jobs) == 1


def test_fewer_records_than_flush_messages_are_acknowledged_and_not_on_the_disk(loop: Loop) -> None:
    partition, waiting = make(loop, TopicConfig(flush_messages=10)), Waiting()
    for number in range(2):
        partition.wait(produce(partition, 9), ALL, waiting, f"nine {number}")
        turn(loop)
        assert waiting.told[-1] == (f"nine {number}", None)
        assert partition.log.recovery_point < partition.log.end_offset
        partition.wait(produce(partition), ALL, waiting, f"tenth {number}")
        turn(loop)
        assert waiting.told[-1] == (f"nine {number}", None)
        partition.wait(produce(partition), ALL, waiting, "while the sync is under way")
        run_until(loop, lambda: waiting.told[-1][0].startswith("while"))
        run_until(loop, lambda: partition.log.recovery_point == partition.log.end_offset)


def test_what_flush_ms_asks_for_is_done_in_time_and_once(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    partition, waiting = make(loop, TopicConfig(flush_ms=20)), Waiting()
    delays: list[float] = []
    call_later = loop.call_later

    def note(seconds: float, done: Callable[[], None]) -> Timer:
        delays.append(seconds)
        return call_later(seconds, done)

    monkeypatch.setattr(loop, "call_later", note)
    for _ in range(2):
        for _ in range(3):
            partition.wait(produce(partition), ALL, waiting, "")
            turn(loop)
        assert delays == [0.02]
        run_until(loop, lambda: partition.log.recovery_point == partition.log.end_offset)
        delays.clear()
    assert len(waiting.told) == 6


def test_other_settings_hold_for_the_next_append(loop: Loop) -> None:
    partition, waiting = make(loop), Waiting()
    partition.log.reconfigure(TopicConfig(flush_messages=1))
    partition.wait(produce(partition), ALL, waiting, "")
    turn(loop)
    assert waiting.told == []
    partition.log.reconfigure(TopicConfig())
    partition.wait(produce(partition), ALL, waiting, "")
    turn(loop)
    assert len(waiting.told) == 2


def test_what_housekeeping_brought_to_the_disk_counts(loop: Loop) -> None:
    partition = make(loop, waits_for_disk=True)
    end_offset = produce(partition)
    partition.writer.write_gathered()
    assert not partition.is_committed(end_offset)
    partition.log.flush(0)
    assert partition.is_committed(end_offset)
    called: list[LogError | None] = []
    partition.when_committed(end_offset, called.append)
    assert called == [None]


def test_a_sync_that_fails_is_told_to_who_waits_and_stops_the_log(loop: Loop) -> None:
    files = SimulatedFiles()
    partition, waiting = make(loop, files=files, waits_for_disk=True), Waiting()
    called: list[LogError | None] = []
    end_offset = produce(partition)
    partition.wait(end_offset, LEADER, waiting, "")
    partition.when_committed(end_offset, called.append)
    partition.writer.write_gathered()
    files.arm(files.operation_count + 1, Effect.FAIL)
    run_until(loop, lambda: called)
    assert isinstance(called[0], StorageFailed)
    assert isinstance(waiting.told[0][1], StorageFailed)
    assert partition.log.failure is not None


def test_a_log_that_failed_is_not_asked_again_and_tells_who_waits(loop: Loop) -> None:
    partition = make(loop, waits_for_disk=True)
    end_offset = produce(partition)
    partition.writer.write_gathered()
    partition.log.stopped(OSError("the disk is gone"))
    called: list[LogError | None] = []
    partition.when_committed(end_offset, called.append)
    for _ in range(3):
        turn(loop)
    assert [type(failure) for failure in called] == [StorageFailed]
    assert not loop.is_busy()


def test_a_sync_that_cannot_begin_is_not_tried_again_before_somebody_waits(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, waiting = make(loop, waits_for_disk=True), Waiting()
    full = mock.Mock(side_effect=OSError(errno.ENOSPC, "full"))
    with monkeypatch.context() as patched:
        patched.setattr(LeaderEpochs, "save", full)
        partition.wait(produce(partition, size_bytes=1000), ALL, waiting, "full")  # too long to be young
        run_until(loop, lambda: has_told(waiting, 1))
        for _ in range(3):
            turn(loop)
    assert not loop.is_busy()
    assert full.call_count == 1
    partition.wait(produce(partition), ALL, waiting, "room")
    run_until(loop, lambda: has_told(waiting, 2))
    [(_, failure), room] = waiting.told
    assert isinstance(failure, StorageFailed)
    assert room == ("room", None)
    assert partition.log.recovery_point == 2


def test_a_mistake_at_the_end_of_a_sync_is_told_to_who_waits_and_the_next_sync_follows(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, waiting = Rounds(loop, waits_for_disk=True), Waiting()
    broken, sound = (sole_leader(new_log(), rounds, node_id=LEADER, index=index) for index in range(2))
    end = LogFlusher.end

    def mistaken(self: LogFlusher, *arguments: Any) -> None:
        assert self is not broken.log.flusher
        end(self, *arguments)

    monkeypatch.setattr(LogFlusher, "end", mistaken)
    for partition in (broken, sound):
        partition.wait(produce(partition), ALL, waiting, partition.name)
    run_until(loop, lambda: len(waiting.told) == 2)
    told = dict(waiting.told)
    assert isinstance(told["t-0"], StorageFailed)
    assert told["t-1"] is None
    sound.wait(produce(sound), ALL, waiting, "again")
    run_until(loop, lambda: len(waiting.told) == 3)
    assert waiting.told[-1] == ("again", None)


def test_more_than_fits_in_one_write_is_written_in_several(loop: Loop) -> None:
    partition, waiting = make(loop), Waiting()  # whose segments are of 4 KB
    for number in range(20):
        partition.wait(produce(partition, size_bytes=700), ALL, waiting, str(number))
    turn(loop)
    assert waiting.told == [(str(number), None) for number in range(20)]
    assert len(partition.log.segments) > 3
    assert [batch.header.base_offset for batch in served_batches(partition.log)] == list(range(20))


def test_a_mistake_with_one_partition_does_not_keep_the_others_from_their_answers(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, waiting = Rounds(loop), Waiting()
    broken, sound = (sole_leader(new_log(), rounds, node_id=LEADER, index=index) for index in range(2))
    for partition in (broken, sound):
        partition.wait(produce(partition), ALL, waiting, partition.name)
    monkeypatch.setattr(broken, "end_round", lambda: 1 / 0)
    turn(loop)
    assert waiting.told == [("t-1", None)]


def test_who_waits_for_the_disk_does_not_wait_for_the_files_of_a_deleted_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """To remove thousands of files takes seconds."""
    has_begun, may_end = threading.Event(), threading.Event()

    def remove_tree(_files: DiskFiles, _path: str) -> None:
        has_begun.set()
        assert may_end.wait(WAIT_S)

    monkeypatch.setattr(DiskFiles, "remove_tree", remove_tree)
    with ottla.testing.broker(durability="fsync", settings={"log.segment.delete.delay.ms": "0"}) as broker:
        for name in ("large", "other"):
            broker.topic(name)
        with Producer(broker.bootstrap) as producer, Admin(broker.bootstrap) as admin:
            producer.send("large", b"a").result(WAIT_S)
            admin.delete_topics(["large"])
            assert has_begun.wait(WAIT_S)
            producer.send("other", b"a").result(WAIT_S / 2)
        may_end.set()
