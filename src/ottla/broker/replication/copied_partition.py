"""One partition that is copied: where it was asked for, and what is done to its log with what its leader answers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias

from ottla.broker.events import Events
from ottla.broker.loop.loop import Timer
from ottla.broker.loop.slices import StepResult
from ottla.log.replicated import has_batch
from ottla.replica.follower import Copy, Follower, RestartAt, State, Truncate
from ottla.replica.partition import Partition

events = Events("ottla.broker")

Key = tuple[bytes, int]  # a topic's id, and the partition
Work: TypeAlias = Generator[StepResult, None, bool]
"""It gives whether it was done: the partition may be left meanwhile."""


class CopiedPartition:
    __slots__ = ("asked_offset", "asked_start_offset", "follower", "is_in_session", "partition", "retries", "timer")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.follower = Follower(partition.leader_epoch)
        self.asked_offset = -1  # as the leader knows it
        self.asked_start_offset = -1
        self.is_in_session = False
        self.retries = 0  # since the last good answer
        self.timer: Timer | None = None

    @property
    def key(self) -> Key:
        return self.partition.topic_id, self.partition.index

    @property
    def has_moved(self) -> bool:
        """Whether the log ends or starts elsewhere than the leader knows."""
        log = self.partition.log
        return (log.log_start_offset, log.end_offset) != (self.asked_start_offset, self.asked_offset)

    def must_copy_again(self, node_id: int) -> bool:
        """Whether records have rotted here. Others count on the rest where this one is in sync or eligible, or may be
        since it has asked in this epoch. `node_id`: of this broker."""
        partition, has_asked = self.partition, self.asked_offset >= 0
        counts = has_asked or node_id in (*partition.in_sync, *partition.eligible)
        return not counts and partition.log.hole is not None

    def copying(self, effect: Copy, clock_ms: Callable[[], int]) -> Work:
        """Write what came. Very many batches take some steps, between which it may follow no more."""
        partition, follower = self.partition, self.follower
        records = memoryview(effect.records)
        while True:
            copied = records, follower.leader_epoch, effect.high_watermark, effect.log_start_offset
            records = records[partition.copy(*copied, clock_ms()) :]
            if not has_batch(records):
                return True
            yield None
            if not self._goes_on():
                return False

    def _goes_on(self) -> bool:
        """Whether it is still followed in the same epoch."""
        follower = self.follower
        return follower.state is State.FETCHING and self.partition.leader_epoch == follower.leader_epoch

    def cutting(self, effect: Truncate | RestartAt, clock_ms: Callable[[], int]) -> Work:
        """Cut the log. Another thread waits for the disk; meanwhile it may be decided that it follows no more."""
        follower, log = self.follower, self.partition.log
        try:
            yield log.prepare_cut(effect.offset)
            if follower.state is State.TRUNCATING and self.partition.log is log:  # or it was moved
                self._cut(effect, clock_ms())
                cut = log.cut
                if cut is not None:
                    yield cut.sync
                    if log.cut is cut:
                        log.cut = None
        except OSError as error:
            raise log.stopped(error) from error
        is_done = follower.state is State.TRUNCATING
        if is_done:
            follower.truncated()
        return is_done

    def _cut(self, effect: Truncate | RestartAt, now_ms: int) -> None:
        partition, offset = self.partition, effect.offset
        if isinstance(effect, RestartAt):
            events.info("a log begins anew where the leader's starts", partition=partition.name, offset=offset)
            partition.restart_at(offset, now_ms)
        else:
            self._tell_of_cut(offset)
            partition.truncate(offset, now_ms)

    def _tell_of_cut(self, offset: int) -> None:
        partition = self.partition
        hole = partition.log.hole
        is_copied_again = hole is not None and offset == hole.first_offset
        if not is_copied_again and offset < partition.machine.high_watermark:
            events.warning(
                "committed records are cut: the leader does not have them",
                partition=partition.name,
                offset=offset,
                high_watermark=partition.machine.high_watermark,
            )
