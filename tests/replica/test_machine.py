"""The machine of a partition: what it decides, case by case, and what must hold whatever happens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.replica.machine import ALL, TRANSITIONS, UNLIMITED, Effects, Event, Machine, Role
from ottla.wire.errors import ErrorCode

LEADER, FOLLOWER, OTHER = 1, 2, 3
REPLICAS = (LEADER, FOLLOWER, OTHER)
ONE = 1  # acks


def leading(
    in_sync: tuple[int, ...] = REPLICAS, *, replicas: tuple[int, ...] = REPLICAS, end_offset: int = 0
) -> Machine:
    machine = Machine(LEADER, end_offset=end_offset)
    assert machine.lead(1, replicas, in_sync).refusal is None
    return machine


def in_role(role: Role) -> Machine:
    machine = Machine(LEADER, end_offset=5, high_watermark=3)
    if role is Role.LEADER:
        machine.lead(1, REPLICAS, REPLICAS)
    elif role is Role.FOLLOWER:
        machine.follow(FOLLOWER, 1)
    return machine


def state(machine: Machine) -> dict[str, object]:
    followers = {replica: follower.end_offset for replica, follower in machine.followers.items()}
    return {name: getattr(machine, name) for name in Machine.__slots__} | {"followers": followers}


EVENTS: dict[Event, Callable[[Machine], Effects]] = {
    Event.LEAD: lambda machine: machine.lead(2, REPLICAS, REPLICAS),
    Event.FOLLOW: lambda machine: machine.follow(FOLLOWER, 2),
    Event.STOP: lambda machine: machine.stop(),
    Event.APPEND: lambda machine: Effects(refusal=machine.may_append(ALL)),
    Event.WRITTEN: lambda machine: machine.appended(6),
    Event.COPIED: lambda machine: machine.copied(6, 6),
    Event.ON_DISK: lambda machine: machine.on_disk(4),
    Event.FOLLOWER_AT: lambda machine: machine.follower_at(FOLLOWER, 1, 4, 0),
    Event.FOLLOWER_WAITS: lambda machine: machine.follower_waits(FOLLOWER, 1),
    Event.LAG: lambda machine: machine.lag(100, 10),
    Event.IN_SYNC: lambda machine: machine.in_sync_set(1, [LEADER]),
    Event.WITHDRAWN: lambda machine: machine.withdrawn(),
    Event.TRANSACTIONS: lambda machine: machine.transactions_from(2),
    Event.DURABILITY: lambda machine: machine.durability(0, 1),
    Event.TRUNCATED: lambda machine: machine.truncated(4),
    Event.STARTS_AT: lambda machine: machine.starts_at(4),
}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("event", Event)
def test_every_event_in_every_role_goes_by_the_table(role: Role, event: Event) -> None:
    machine = in_role(role)
    before = state(machine)
    effects = EVENTS[event](machine)
    if (role, event) in TRANSITIONS:
        assert effects.refusal is None
        assert machine.role is TRANSITIONS[role, event]
    else:
        assert effects == Effects(refusal=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert state(machine) == before


# One replica


def test_with_one_replica_all_that_is_written_is_committed() -> None:
    machine = leading((LEADER,), replicas=(LEADER,))
    assert machine.appended(3).advances
    assert (machine.written, machine.committed, machine.high_watermark, machine.last_stable_offset) == (3, 3, 3, 3)
    assert not machine.appended(3).advances


def test_an_open_transaction_holds_back_the_last_stable_offset_alone() -> None:
    machine = leading((LEADER,), replicas=(LEADER,))
    machine.appended(5)
    machine.transactions_from(2)
    assert (machine.last_stable_offset, machine.committed) == (2, 5)
    machine.starts_at(4)  # its records are deleted
    assert machine.last_stable_offset == 4
    assert machine.transactions_from(None).advances
    assert machine.last_stable_offset == 5


@pytest.mark.parametrize(("unsynced_records", "acknowledged"), [(0, 2), (3, 5), (9, 6), (UNLIMITED, 6)])
def test_acknowledgements_wait_for_the_disk_as_the_durability_asks(unsynced_records: int, acknowledged: int) -> None:
    machine = leading((LEADER,), replicas=(LEADER,))
    machine.durability(unsynced_records, 1)
    machine.appended(2)
    machine.on_disk(2)
    effects = machine.appended(6)
    assert effects.syncs == (acknowledged < 6)
    assert (machine.written, machine.committed) == (acknowledged, acknowledged)
    assert machine.high_watermark == acknowledged  # readers wait for the disk, too
    machine.on_disk(6)
    assert (machine.written, machine.committed) == (6, 6)


# Several


def test_what_the_leader_has_only_in_memory_is_not_committed_though_all_others_have_it() -> None:
    """Or one that takes over would show what is gone when the old leader, in sync until then, has lost its power."""
    machine = leading()
    machine.durability(0, 1)
    machine.appended(2)
    for replica in (FOLLOWER, OTHER):
        machine.follower_at(replica, 1, 2, 0)
    assert (machine.high_watermark, machine.committed) == (0, 0)
    assert machine.on_disk(2).advances
    assert (machine.high_watermark, machine.committed) == (2, 2)


def test_what_all_in_sync_have_is_committed() -> None:
    machine = leading()
    machine.appended(10)
    assert (machine.written, machine.committed, machine.high_watermark) == (10, 0, 0)
    machine.follower_at(FOLLOWER, 1, 10, 0)
    assert machine.committed == 0  # the other has told nothing yet
    assert machine.follower_at(OTHER, 1, 4, 0).advances
    assert (machine.committed, machine.high_watermark) == (4, 4)
    machine.in_sync_set(1, [LEADER, FOLLOWER])
    assert machine.committed == 10


def test_one_that_joins_counts_from_when_it_is_proposed() -> None:
    machine = leading((LEADER, FOLLOWER))
    machine.appended(10)
    machine.follower_at(FOLLOWER, 1, 10, 0)
    assert machine.follower_at(OTHER, 1, 9, 0).proposes is None  # it lacks what is committed
    assert machine.follower_at(OTHER, 1, 10, 0).proposes == frozenset({LEADER, FOLLOWER, OTHER})
    machine.appended(12)
    machine.follower_at(FOLLOWER, 1, 12, 0)
    assert machine.committed == 10
    assert machine.follower_at(OTHER, 1, 11, 0).proposes is None  # one proposal at a time
    machine.in_sync_set(1, [LEADER, FOLLOWER])  # the controller decides against it
    assert machine.committed == 12


def test_one_that_was_refused_or_came_second_joins_while_it_waits_though_nothing_is_written() -> None:
    machine = leading((LEADER,), end_offset=5)
    assert machine.follower_at(FOLLOWER, 1, 5, 0, broker_epoch=7).proposes == frozenset({LEADER, FOLLOWER})
    assert machine.follower_at(OTHER, 1, 5, 0).proposes is None  # one proposal at a time
    assert machine.follower_waits(OTHER, 1).proposes is None
    machine.withdrawn()
    assert machine.lacks_followers
    assert machine.follower_waits(FOLLOWER, 2, broker_epoch=8).proposes == frozenset({LEADER, FOLLOWER})
    assert machine.followers[FOLLOWER].broker_epoch == 8  # it has registered again: this is why it was refused
    assert machine.follower_waits(FOLLOWER, 2, broker_epoch=7).refusal is not None
    machine.in_sync_set(1, {LEADER, FOLLOWER})
    assert machine.follower_waits(FOLLOWER, 3, broker_epoch=8).proposes is None
    assert machine.follower_waits(OTHER, 3).proposes == frozenset({LEADER, FOLLOWER, OTHER})
    machine.in_sync_set(1, REPLICAS)
    assert not machine.lacks_followers


def test_one_that_lacks_what_the_epoch_began_with_does_not_join() -> None:
    machine = Machine(LEADER, end_offset=10, high_watermark=5)
    machine.lead(1, REPLICAS, [LEADER, OTHER])
    assert machine.follower_at(FOLLOWER, 1, 7, 0).proposes is None  # some of it may be committed: nobody has told yet
    assert machine.high_watermark == 5
    assert machine.follower_at(FOLLOWER, 1, 10, 0).proposes == frozenset({LEADER, OTHER, FOLLOWER})


def test_who_is_behind_for_too_long_leaves_and_a_busy_leader_is_followed() -> None:
    machine = leading()
    for now_ms in range(0, 1000, 100):
        machine.follower_at(FOLLOWER, 1, machine.end_offset, now_ms)  # it has what there was when it asked
        machine.appended(machine.end_offset + 5)
    assert machine.lag(1000, 500).proposes == frozenset({LEADER, FOLLOWER})
    assert machine.lag(1000, 500) == Effects()  # the controller has not decided yet
    machine.in_sync_set(1, [LEADER, FOLLOWER])
    assert machine.lag(1000, 500) == Effects()
    assert machine.lag(2000, 500).proposes == frozenset({LEADER})


def test_too_few_in_sync_take_no_append_with_all_acks_and_commit_nothing() -> None:
    machine = leading((LEADER, FOLLOWER))
    machine.durability(UNLIMITED, 2)
    assert machine.may_append(ALL) is None
    machine.in_sync_set(1, [LEADER])
    assert machine.may_append(ALL) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert machine.may_append(ONE) is None
    machine.appended(3)
    assert (machine.written, machine.committed) == (3, 0)


def test_a_topic_of_one_replica_is_content_with_it() -> None:
    machine = leading((LEADER,), replicas=(LEADER,))
    machine.durability(UNLIMITED, 2)
    assert machine.may_append(ALL) is None


@pytest.mark.parametrize(
    ("replica", "epoch", "offset", "code"),
    [
        (FOLLOWER, 0, 0, ErrorCode.FENCED_LEADER_EPOCH),
        (FOLLOWER, 2, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (9, 1, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (LEADER, 1, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (FOLLOWER, 1, 6, ErrorCode.OFFSET_OUT_OF_RANGE),
        (FOLLOWER, 1, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_a_follower_of_another_time_is_refused(replica: int, epoch: int, offset: int, code: ErrorCode) -> None:
    machine = leading(end_offset=5)
    before = state(machine)
    assert machine.follower_at(replica, epoch, offset, 0).refusal is code
    assert state(machine) == before


# Epochs


def test_a_leader_that_is_replaced_refuses_who_waits() -> None:
    machine = leading()
    assert machine.follow(FOLLOWER, 2) == Effects(loses=True)
    assert machine.may_append(ONE) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not machine.follow(OTHER, 3).loses


@pytest.mark.parametrize("role", [Role.LEADER, Role.FOLLOWER])
@pytest.mark.parametrize("epoch", [0, 1])
def test_what_is_decided_late_is_refused(role: Role, epoch: int) -> None:
    machine = in_role(role)
    before = state(machine)
    assert machine.lead(epoch, REPLICAS, REPLICAS).refusal is ErrorCode.FENCED_LEADER_EPOCH
    assert machine.follow(OTHER, epoch).refusal is ErrorCode.FENCED_LEADER_EPOCH
    assert machine.in_sync_set(0, [LEADER]).refusal is not None
    assert state(machine) == before


def test_one_that_was_stopped_takes_its_epoch_up_again() -> None:
    machine = leading()
    assert machine.stop().loses
    assert machine.lead(1, REPLICAS, REPLICAS).refusal is None


def test_a_follower_is_told_how_far_the_leader_is() -> None:
    machine = Machine(LEADER)
    machine.follow(FOLLOWER, 1)
    machine.copied(5, 3)
    assert machine.high_watermark == 3
    machine.copied(6, 9)
    assert machine.high_watermark == 6
    machine.copied(8, 4)  # a late word of the leader takes nothing back
    assert machine.high_watermark == 6
    machine.truncated(5)
    assert (machine.end_offset, machine.high_watermark) == (5, 5)


# Whatever happens

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("fetch"), st.sampled_from(REPLICAS), st.integers(1, 5)),
        st.tuples(st.just("decide"), st.booleans(), st.just(0)),
        st.tuples(st.just("lag"), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("sync"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("elect"), st.sampled_from(REPLICAS), st.just(0)),
    ),
    max_size=60,
)


class Replicas:
    """Three replicas and a controller, with messages that come at once; logs are lists of epochs."""

    def __init__(self, unsynced_records: int, min_in_sync: int) -> None:
        self.machines = {replica: Machine(replica) for replica in REPLICAS}
        self.logs: dict[int, list[tuple[int, int]]] = {replica: [] for replica in REPLICAS}
        self.in_sync = frozenset(REPLICAS)
        self.proposal: frozenset[int] | None = None
        self.epoch = 0
        self.leader = LEADER
        self.now_ms = 0
        self.numbers = 0
        self.committed: list[tuple[int, int]] = []
        for machine in self.machines.values():
            machine.durability(unsynced_records, min_in_sync)
        self.elect(LEADER)

    def note(self, effects: Effects) -> None:
        if effects.proposes is not None:
            self.proposal = effects.proposes
        leader = self.machines[self.leader]
        acknowledged = self.logs[self.leader][: leader.committed]
        if len(acknowledged) > len(self.committed):
            self.committed = acknowledged

    def append(self, count: int, _: int) -> None:
        leader, log = self.machines[self.leader], self.logs[self.leader]
        if leader.may_append(ALL) is None:
            for _number in range(count):
                self.numbers += 1
                log.append((self.epoch, self.numbers))
            self.note(leader.appended(len(log)))

    def fetch(self, replica: int, count: int) -> None:
        if replica == self.leader:
            return
        self.now_ms += 1
        leader, follower = self.machines[self.leader], self.machines[replica]
        log, copied = self.logs[self.leader], self.logs[replica]
        self.note(leader.follower_at(replica, self.epoch, len(copied), self.now_ms))
        copied += log[len(copied) : len(copied) + count]
        follower.copied(len(copied), leader.high_watermark)

    def decide(self, agrees: bool, _: int) -> None:
        if self.proposal is not None:
            if agrees:
                self.in_sync = self.proposal
            self.proposal = None
            self.note(self.machines[self.leader].in_sync_set(self.epoch, self.in_sync))

    def lag(self, passed_ms: int, _: int) -> None:
        self.now_ms += passed_ms
        self.note(self.machines[self.leader].lag(self.now_ms, 20))

    def sync(self, offset: int, _: int) -> None:
        self.note(self.machines[self.leader].on_disk(offset))

    def elect(self, replica: int, _: int = 0) -> None:
        """The leader dies, and one that is in sync takes its place; the others cut off what it does not have."""
        if replica not in self.in_sync:
            return
        self.epoch += 1
        self.leader, self.proposal = replica, None
        log = self.logs[replica]
        for other, machine in self.machines.items():
            if other == replica:
                assert machine.lead(self.epoch, REPLICAS, self.in_sync, self.now_ms).refusal is None
                continue
            machine.follow(replica, self.epoch)
            mine = self.logs[other]
            common = next((at for at, pair in enumerate(zip(mine, log, strict=False)) if pair[0] != pair[1]), None)
            del mine[min(len(mine), len(log)) if common is None else common :]
            machine.truncated(len(mine))

    def check(self) -> None:
        leader = self.machines[self.leader]
        assert self.logs[self.leader][: len(self.committed)] == self.committed
        for replica in self.in_sync:
            assert self.logs[replica][: len(self.committed)] == self.committed
        for replica, machine in self.machines.items():
            assert 0 <= machine.last_stable_offset <= machine.high_watermark <= machine.end_offset
            assert machine.end_offset == len(self.logs[replica])
            assert machine.committed <= machine.high_watermark
            assert machine.committed <= machine.written <= machine.end_offset
            assert machine.written <= machine.disk_offset + machine.unsynced_records
        assert leader.leader_id == self.leader


@given(steps, st.sampled_from([0, 3, UNLIMITED]), st.sampled_from([1, 2, 3]))
def test_nothing_that_is_committed_is_lost(
    steps: list[tuple[str, int, int]], unsynced_records: int, min_in_sync: int
) -> None:
    replicas = Replicas(unsynced_records, min_in_sync)
    high_watermarks: dict[int, int] = {}
    for step, first, second in steps:
        getattr(replicas, step)(first, second)
        replicas.check()
        high_watermark = replicas.machines[replicas.leader].high_watermark
        assert high_watermark >= high_watermarks.get(replicas.epoch, 0)  # in one epoch it never falls
        high_watermarks[replicas.epoch] = high_watermark
