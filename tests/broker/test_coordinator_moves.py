"""Coordinators follow the leaders of their partitions: loaded where one leads, let go where it leads no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ottla.coordinator.operation import Operation
from ottla.replica.partition import Partition
from ottla.wire.errors import ErrorCode
from tests.broker.test_coordinator import TOPIC, Counting

HERE, ELSEWHERE = 1, 2


class Moving:
    """A coordinator whose partitions are led here, or elsewhere, as a test says."""

    def __init__(self, folder: Path) -> None:
        self.counting = Counting(folder)
        self.counting.broker.roles.watch(self._role_changed)

    def _role_changed(self, partition: Partition) -> None:
        if partition.topic == TOPIC:
            self.counting.coordinator.role_changed(partition)

    def lead(self, leader_id: int, name: str = "a", in_sync: Sequence[int] = (HERE,)) -> Partition:
        partition = self.counting.partition(name)
        partition.apply(
            leader_id=leader_id,
            leader_epoch=partition.leader_epoch + 1,
            partition_epoch=partition.partition_epoch + 1,
            replicas=[HERE, ELSEWHERE],
            in_sync=in_sync,
            now_ms=0,
        )
        return partition

    def load(self, name: str = "a") -> None:
        self.counting.loop.run_until(lambda: not isinstance(self.counting.coordinator.find_shard(name), ErrorCode))

    @property
    def last(self) -> tuple[int, int]:
        """The error code of the last answer, and the count in it."""
        answer = self.counting.answers[-1]
        return answer.error_code, answer.throttle_time_ms


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    moving = Moving(tmp_path)
    yield moving
    moving.counting.stop()


def test_it_is_loaded_where_it_is_led(moving: Moving) -> None:
    moving.counting.count("a")
    moving.lead(ELSEWHERE)
    moving.counting.look("a")
    assert moving.last == (ErrorCode.NOT_COORDINATOR, 0)
    moving.lead(HERE)
    moving.load()
    moving.counting.look("a")
    assert moving.last == (0, 1)


def test_who_waits_is_told_that_it_has_moved(moving: Moving) -> None:
    moving.counting.count("a")
    partition = moving.lead(HERE, in_sync=(HERE, ELSEWHERE))
    moving.load()
    moving.counting.count("a")  # the other replica does not have it
    assert len(moving.counting.answers) == 1
    moving.lead(ELSEWHERE)
    assert moving.last == (ErrorCode.NOT_COORDINATOR, 0)
    moving.counting.end_round()
    assert len(moving.counting.answers) == 2
    assert moving.counting.coordinator.shard_of(partition.index) is None
    assert not moving.counting.coordinator.is_loading


def test_what_a_machine_keeps_waiting_is_told_too(moving: Moving) -> None:
    moving.counting.count("a")
    moving.counting.machine("a").waiting.append(moving.counting.reply())
    moving.lead(ELSEWHERE)
    assert moving.last == (ErrorCode.NOT_COORDINATOR, 0)


def test_what_was_gathered_is_not_written_when_another_leads(moving: Moving) -> None:
    moving.counting.count("a")
    partition = moving.counting.partition("a")
    end_offset = partition.log.end_offset
    moving.counting.submit_count("a")
    moving.lead(ELSEWHERE)
    moving.counting.end_round()
    assert partition.log.end_offset == end_offset
    assert moving.last == (ErrorCode.NOT_COORDINATOR, 0)


def test_timers_end_with_the_leadership(moving: Moving) -> None:
    moving.counting.count("a")
    machine = moving.counting.machine("a")
    shard = moving.counting.coordinator.shard_of(moving.counting.partition("a").index)
    assert shard is not None

    def set_timer(operation: Operation) -> None:
        operation.set_timer("soon", 1)

    shard.run(set_timer)
    moving.lead(ELSEWHERE)
    due = moving.counting.loop.now() + 0.01
    moving.counting.loop.run_until(lambda: moving.counting.loop.now() > due)
    assert machine.expirations == []


def test_records_above_the_high_watermark_are_loaded_and_answered_when_they_are_committed(moving: Moving) -> None:
    """The leader before may have committed them, and this broker not heard of it."""
    moving.counting.count("a")
    partition = moving.lead(HERE, in_sync=(HERE, ELSEWHERE))
    moving.load()
    moving.counting.count("a")
    assert partition.log.high_watermark < partition.log.end_offset
    moving.lead(ELSEWHERE, in_sync=(HERE, ELSEWHERE))
    partition = moving.lead(HERE, in_sync=(HERE, ELSEWHERE))
    moving.load()
    assert moving.counting.machine("a").counts == {"a": 2}
    answers = len(moving.counting.answers)
    moving.counting.look("a")
    moving.counting.end_round()
    assert len(moving.counting.answers) == answers
    partition.follower_at(ELSEWHERE, partition.leader_epoch, partition.log.end_offset, 0)
    moving.counting.end_round()
    assert moving.last == (0, 2)


def test_an_old_load_is_dropped_when_leadership_goes_back_and_forth(moving: Moving) -> None:
    moving.counting.count("a")
    partition = moving.counting.partition("a")
    shards = []
    for _ in range(5):
        moving.lead(ELSEWHERE)
        moving.lead(HERE)
        shards.append(moving.counting.coordinator.shard_of(partition.index))
    moving.load()
    moving.counting.end_round()
    assert [shard is not None and shard.is_loaded for shard in shards] == [False] * 4 + [True]
    moving.counting.count("a")
    assert moving.last == (0, 2)


def test_another_epoch_is_another_beginning(moving: Moving) -> None:
    moving.counting.count("a")
    before = moving.counting.machine("a")
    moving.lead(HERE)
    moving.load()
    assert moving.counting.machine("a") is not before
    assert moving.counting.machine("a").counts == {"a": 1}


def test_too_few_replicas_in_sync_are_told_as_no_coordinator(moving: Moving) -> None:
    moving.counting.count("a")
    partition = moving.counting.partition("a")
    partition.log.reconfigure(moving.counting.broker.settings.topic_defaults.topic({"min.insync.replicas": "2"}))
    moving.lead(HERE)
    moving.load()
    end_offset = partition.log.end_offset
    moving.counting.count("a")
    assert moving.last == (ErrorCode.COORDINATOR_NOT_AVAILABLE, 0)
    assert partition.log.end_offset == end_offset


def test_a_shard_that_rests_is_loaded_again_although_its_topic_changes(moving: Moving) -> None:
    """As when other partitions of the topic move to other brokers."""
    moving.counting.count("a")
    index = moving.counting.partition("a").index
    shard = moving.counting.coordinator.shard_of(index)
    assert shard is not None

    def fail(_operation: Operation) -> None:
        raise ValueError("a mistake")

    shard.run(fail)
    assert moving.counting.coordinator.shard_of(index) is None
    moving.counting.broker.topics.changed(TOPIC)
    moving.counting.loop.run_until(lambda: moving.counting.coordinator.shard_of(index) is not None)
    moving.load()
    assert moving.counting.machine("a").counts == {"a": 1}
