"""Mistakes that are made on purpose, to see that the simulation finds them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from typing import Any
from unittest import mock

from ottla.controller import leaders
from ottla.coordinator.consumer import group as consumer_group
from ottla.coordinator.offsets.offsets import Offsets
from ottla.log.aborted import AbortedIndex
from ottla.log.folders import LogFolders
from ottla.log.loss import Loss
from ottla.log.producers import Producers
from ottla.log.sync import SyncRound
from ottla.records.placement import Placement, Stray
from ottla.replica import machine
from ottla.replica.machine import Machine
from ottla.replica.partition import Partition

Planted = AbstractContextManager[Any]


def skip_syncs() -> Planted:
    """A round of syncs says that all is on the disk, and has not asked for it."""
    return mock.patch.object(SyncRound, "run", lambda syncs: syncs._errors.clear())


def acknowledge_early() -> Planted:
    """What is written is acknowledged before it is on the disk."""
    decide = Machine._decide

    def acknowledge_all(machine: Machine) -> None:
        decide(machine)
        machine.written = machine.committed = machine.end_offset

    return mock.patch.object(Machine, "_decide", acknowledge_all)


def forget_aborts() -> Planted:
    """Readers are not told of transactions that were aborted."""
    return mock.patch.object(AbortedIndex, "append", autospec=True, return_value=None)


def show_undecided() -> Planted:
    """Readers of what is committed do not wait for the end of transactions."""
    return mock.patch.object(machine, "stable_offset", lambda high_watermark, *_: high_watermark)


def write_twice() -> Planted:
    """What is sent again is written again."""
    return mock.patch.multiple(
        Producers, find_duplicate=lambda _producers, _header: None, check=lambda *_arguments, **_options: None
    )


def forget_offsets() -> Planted:
    """Some offsets of groups are acknowledged and forgotten."""
    put, numbers = Offsets.put, count()

    def put_most(offsets: Offsets, group_id: str, partition: Any, value: Any, producer_id: int) -> Any:
        before = put(offsets, group_id, partition, value, producer_id)
        if before is not None and next(numbers) % 3:
            offsets.take_back(group_id, partition, producer_id, before)
        return before

    return mock.patch.object(Offsets, "put", put_most)


def commit_alone() -> Planted:
    """A leader does not wait for its followers."""

    def replicated(leader: Machine) -> None:
        leader.high_watermark = leader.end_offset

    return mock.patch.object(Machine, "_replicated", replicated)


def elect_anybody() -> Planted:
    """Whoever is there leads, in sync or not."""
    elected = leaders._elected

    def elect(state: Any, rules: Any, usable: Any, **_: Any) -> Any:
        return elected(state, rules, usable, is_unclean=True)

    return mock.patch.object(leaders, "_elected", elect)


def tell_of_memory() -> Planted:
    """A follower asks for what comes next before its disk has what came."""
    return mock.patch.object(Partition, "is_written", True)


def join_early() -> Planted:
    """Who asks is proposed to be in sync, however far behind."""
    return mock.patch.object(
        Machine, "_may_join", lambda leader, replica, _: replica not in leader.in_sync and leader.proposed is None
    )


def leave_early() -> Planted:
    """A leader goes on without those who are behind, before that is decided."""
    lag = Machine.lag

    def lag_alone(leader: Machine, *arguments: Any) -> Any:
        effects = lag(leader, *arguments)
        if effects.proposes is not None:
            leader.in_sync = effects.proposes
        return effects

    return mock.patch.object(Machine, "lag", lag_alone)


def count_late() -> Planted:
    """One that is proposed does not count for the high watermark, though it may have been decided for."""

    def replicated(leader: Machine) -> None:
        if leader.followers and leader.is_under_min_in_sync:
            return
        others = [follower.end_offset for replica, follower in leader.followers.items() if replica in leader.in_sync]
        leader.high_watermark = max(leader.high_watermark, min([leader.end_offset, *others]))

    return mock.patch.object(Machine, "_replicated", replicated)


def commit_with_too_few() -> Planted:
    """The high watermark moves with fewer in sync than there must be, and those who left are eligible still."""

    def replicated(leader: Machine) -> None:
        counting = leader.in_sync | (leader.proposed or frozenset())
        others = [follower.end_offset for replica, follower in leader.followers.items() if replica in counting]
        leader.high_watermark = max(leader.high_watermark, min([leader.end_offset, *others]))

    return mock.patch.object(Machine, "_replicated", replicated)


def trust_the_restarted() -> Planted:
    """Somebody is in sync by what its broker had before it was started anew."""
    altered = leaders.altered

    def alter(cluster: Any, state: Any, rules: Any, proposal: Any) -> Any:
        members = [(member, -1) for member, _ in proposal.in_sync]
        return altered(cluster, state, rules, proposal._replace(in_sync=members))

    return mock.patch("ottla.broker.handlers.alter_partition.altered", alter)


def forget_what_was_lost() -> Planted:
    """A machine that lost its memory says that it has all it had."""
    return mock.patch.object(LogFolders, "loss", return_value=Loss.NOTHING)


MISTAKES: dict[str, Callable[[], Planted]] = {
    "skip syncs": skip_syncs,
    "acknowledge early": acknowledge_early,
    "forget aborts": forget_aborts,
    "show undecided": show_undecided,
    "write twice": write_twice,
    "forget offsets": forget_offsets,
}


def hold_nothing_back() -> Planted:
    """A group is given new partitions whatever it has read of their parents."""
    return mock.patch.object(consumer_group, "held_of", return_value=frozenset())


def take_any_key() -> Planted:
    """Parents take keys that went, and count none."""
    return mock.patch.object(Placement, "look", return_value=Stray.NONE)


OF_GROWING: dict[str, Callable[[], Planted]] = {"hold nothing back": hold_nothing_back, "take any key": take_any_key}

OF_CLUSTERS: dict[str, Callable[[], Planted]] = {
    "commit alone": commit_alone,
    "elect anybody": elect_anybody,
    "tell of memory": tell_of_memory,
}
BY_HAND: dict[str, Callable[[], Planted]] = {
    "join early": join_early,
    "leave early": leave_early,
    "commit with too few": commit_with_too_few,
    "forget what was lost": forget_what_was_lost,
    "count late": count_late,
    "trust the restarted": trust_the_restarted,
}
"""They take too many seeds for every run of the tests: `python -m tests.sim --in-sync --mistake "join early"`.

Some dozens of seeds find each of them.
"""
