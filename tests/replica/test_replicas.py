"""Replicas in seeded worlds: nothing committed is lost or changed, and mistakes that are planted are found."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from ottla.log.epochs import LeaderEpochs
from ottla.log.errors import LogError
from ottla.log.log import Log
from ottla.replica import follower
from ottla.replica.follower import Answer, Copy, Effect, Follower
from ottla.replica.machine import Machine
from ottla.replica.partition import Partition, Read
from tests.replica.replicas import run

SEEDS = int(os.environ.get("OTTLA_REPLICA_SEEDS", "60"))
STEPS = 250


def test_nothing_committed_is_lost_whatever_happens() -> None:
    worlds = [run(seed, STEPS) for seed in range(SEEDS)]
    assert sum(world.truncations for world in worlds) > SEEDS / 4
    assert sum(len(world.committed) for world in worlds) > SEEDS * 5
    assert sum(world.elections for world in worlds) > SEEDS


def never_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower goes on where its log ends, though the leader's went another way."""

    def read_for_replica(
        self: Partition, offset: int, max_bytes: int, _epoch: int, *, whole_batch: bool = True
    ) -> Read:
        return real(self, min(offset, self.log.end_offset), max_bytes, -1, whole_batch=whole_batch)

    real = Partition.read_for_replica
    monkeypatch.setattr(Partition, "read_for_replica", read_for_replica)


def cuts_at_its_end_of_the_epoch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not ask where its own log left the epoch."""

    def common_end(_epoch: int, end_offset: int, own_end_offset: int, _epochs: LeaderEpochs) -> int:
        return min(end_offset, own_end_offset)

    monkeypatch.setattr(follower, "common_end", common_end)


def takes_late_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer to what was asked before is taken for one to what is asked now."""

    def answered(self: Follower, asked: int, answer: Answer, end_offset: int, epochs: LeaderEpochs) -> Effect:
        if answer.diverging is None and not answer.error:
            return Copy(answer.records or b"", answer.high_watermark, answer.log_start_offset)
        return real(self, asked, answer, end_offset, epochs)

    def unchecked(self: Log, records: memoryview, now_ms: int, most_epoch: int = 0) -> int:
        self.end_offset, end_offset = min(self.end_offset, _base_offset(records)), self.end_offset
        try:
            return append(self, records, now_ms, most_epoch)
        finally:
            self.end_offset = max(self.end_offset, end_offset)

    real, append = Follower.answered, Log.append_replicated
    monkeypatch.setattr(Follower, "answered", answered)
    monkeypatch.setattr(Log, "append_replicated", unchecked)


def _base_offset(records: memoryview) -> int:
    return int.from_bytes(records[:8], "big")


def counts_one_follower_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one other replica has is taken for committed."""

    def replicated(self: Machine) -> None:
        ends = [each.end_offset for each in self.followers.values()]
        if not self.is_under_min_in_sync:
            self.high_watermark = max(self.high_watermark, min(self.end_offset, max(ends, default=0)))

    monkeypatch.setattr(Machine, "_replicated", replicated)


def commits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark moves though too few replicas are in sync."""
    monkeypatch.setattr(Machine, "is_under_min_in_sync", False)


def believes_a_log_that_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower counts though its log is another one."""

    def read_for_replica(self: Partition, offset: int, max_bytes: int, epoch: int, *, whole_batch: bool = True) -> Read:
        for replica in self.machine.followers:
            if offset <= self.log.end_offset:
                self.follower_at(replica, self.leader_epoch, offset, 0, 1 << 30)
        return real(self, offset, max_bytes, epoch, whole_batch=whole_batch)

    real = Partition.read_for_replica
    monkeypatch.setattr(Partition, "read_for_replica", read_for_replica)


MISTAKES: list[Callable[[pytest.MonkeyPatch], None]] = [
    never_cuts,
    cuts_at_its_end_of_the_epoch_alone,
    takes_late_answers,
    counts_one_follower_for_all,
    commits_alone,
    believes_a_log_that_parts,
]


@pytest.mark.parametrize("plant", MISTAKES)
def test_a_planted_mistake_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, LogError, KeyError)):
        run_many(300)


def run_many(seeds: int) -> None:
    for seed in range(seeds):
        run(seed, STEPS)
