"""Members of groups as machines, without I/O: events in, effects out, for both protocols."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client import ConnectionLost, ServerError, TopicPartition
from ottla.client.group.classic import ClassicMachine
from ottla.client.group.consumer import ConsumerMachine
from ottla.client.group.machine import (
    Answered,
    Applied,
    Change,
    Closed,
    ErrorTold,
    FindTarget,
    HeartbeatAnswered,
    HeartbeatDue,
    HeartbeatFailed,
    MemberMachine,
    MemberSettings,
    NextHeartbeat,
    Offered,
    Polled,
    RequestFailed,
    Retry,
    RetryDue,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Start,
    State,
    Synced,
    TargetFound,
    TopicsChanged,
)
from ottla.client.group.requests import ConsumerRequests
from ottla.client.group.subscription import Subscription
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import TopicPartitions

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = frozenset({ONE, TWO})
NOT_STUCK, STUCK = HeartbeatDue(is_stuck=False), HeartbeatDue(is_stuck=True)


def settings(assignor: str = "cooperative-sticky") -> MemberSettings:
    return MemberSettings(None, 45_000, 3_000, 300_000, (assignor,), None)


def attempt_of(effects: list[Any]) -> int:
    [attempt] = [effect.attempt for effect in effects if hasattr(effect, "attempt")]
    return int(attempt)


def joined(code: int = 0, generation: int = 1, member_id: str = "me") -> Any:
    return SimpleNamespace(error_code=code, member_id=member_id, generation_id=generation)


def take_all(machine: MemberMachine) -> list[Change]:
    """Tell the user of each change, until there is none."""
    taken = []
    while (change := machine.take_pending()) is not None:
        taken.append(change)
        machine.handle(Applied(change))
    return taken


def classic(target: frozenset[TopicPartition] = BOTH, assignor: str = "cooperative-sticky") -> ClassicMachine:
    """One that is stable, and owns the target."""
    machine = ClassicMachine("g", settings(assignor))
    synced(machine, attempt_of(machine.handle(Start())), target)
    assert take_all(machine) == [Change(assigned=target)]
    assert machine.state is State.STABLE
    return machine


def synced(machine: ClassicMachine, attempt: int, target: frozenset[TopicPartition], generation: int = 1) -> None:
    effects = machine.handle(Answered(attempt, joined(generation=generation)))
    assert isinstance(effects[0], SendSync)
    machine.handle(Synced(attempt_of(effects), 0, target))


def heartbeat_of(code: int = 0, epoch: int = 1, rows: Any = None) -> Any:
    assignment = None if rows is None else SimpleNamespace(topic_partitions=rows)
    return SimpleNamespace(
        error_code=code, error_message=None, member_epoch=epoch, heartbeat_interval_ms=500, assignment=assignment
    )


def new(target: frozenset[TopicPartition] = BOTH) -> ConsumerMachine:
    machine = ConsumerMachine("g", settings())
    effects = machine.handle(Answered(attempt_of(machine.handle(Start())), heartbeat_of(rows="rows")))
    assert effects == [FindTarget("rows"), NextHeartbeat(500)]
    machine.handle(TargetFound(target))
    if target:
        change = machine.take_pending()
        assert change == Change(assigned=target)
        answer(machine, machine.handle(Applied(change)))
    assert (machine.state, machine.owned) == (State.STABLE, target)
    return machine


def answer(machine: ConsumerMachine, effects: list[Any]) -> None:
    """The heartbeat that is on its way."""
    machine.handle(Answered(attempt_of(effects), heartbeat_of()))


# Classic.


def test_a_member_id_is_asked_for_and_used() -> None:
    machine = ClassicMachine("g", settings())
    first = attempt_of(machine.handle(Start()))
    [again] = machine.handle(Answered(first, joined(ErrorCode.MEMBER_ID_REQUIRED)))
    assert isinstance(again, SendJoin)
    assert (again.attempt > first, machine.member_id) == (True, "me")


def test_late_answers_are_nobodys() -> None:
    machine = ClassicMachine("g", settings())
    first = attempt_of(machine.handle(Start()))
    machine.handle(RequestFailed(first, ConnectionLost("cut")))
    assert machine.handle(Answered(first, joined())) == []
    assert (machine.state, machine.generation) == (State.JOINING, -1)


def test_trouble_is_tried_again_after_a_pause_and_a_retry_counts_once() -> None:
    machine = ClassicMachine("g", settings())
    first = attempt_of(machine.handle(Start()))
    [retry] = machine.handle(RequestFailed(first, ConnectionLost("cut")))
    assert isinstance(retry, Retry)
    assert isinstance(machine.handle(RetryDue(retry.attempt))[0], SendJoin)
    assert machine.handle(RetryDue(retry.attempt)) == []


def test_a_cooperative_member_gives_up_only_what_goes_and_joins_once_more() -> None:
    machine = classic()
    effects = machine.handle(HeartbeatAnswered(1, ErrorCode.REBALANCE_IN_PROGRESS))
    assert machine.owned == BOTH
    synced(machine, attempt_of(effects), frozenset({ONE}), generation=2)
    change = machine.take_pending()
    assert change == Change(revoked=frozenset({TWO}))
    assert isinstance(machine.handle(Applied(change))[0], SendJoin)
    assert machine.owned == {ONE}


def test_an_eager_member_gives_up_all_before_it_joins_and_beats_meanwhile() -> None:
    machine = classic(assignor="range")
    assert machine.handle(HeartbeatAnswered(1, ErrorCode.REBALANCE_IN_PROGRESS)) == [Offered()]
    assert machine.state is State.REVOKING
    assert isinstance(machine.handle(NOT_STUCK)[0], SendHeartbeat)
    machine.handle(HeartbeatAnswered(1, ErrorCode.REBALANCE_IN_PROGRESS))
    change = machine.take_pending()
    assert change == Change(revoked=BOTH)
    assert isinstance(machine.handle(Applied(change))[0], SendJoin)


@pytest.mark.parametrize(
    ("code", "joins_as"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")]
)
def test_who_is_thrown_out_stays_himself_until_his_user_knows(code: ErrorCode, joins_as: str) -> None:
    """And longer, where the coordinator still has him: under another id it would wait for the old one's session."""
    machine = classic()
    before = machine.membership
    machine.handle(HeartbeatAnswered(1, code))
    assert (machine.state, machine.membership) == (State.LOSING, before)
    assert machine.handle(NOT_STUCK) == []
    change = machine.take_pending()
    assert change == Change(lost=BOTH)
    assert isinstance(machine.handle(Applied(change))[0], SendJoin)
    assert (machine.owned, machine.membership.member_id, machine.membership.generation) == (frozenset(), joins_as, -1)


def test_a_loss_while_the_user_is_told_of_something_else_comes_after_that() -> None:
    machine = classic(frozenset({ONE}))
    effects = machine.handle(HeartbeatAnswered(1, ErrorCode.REBALANCE_IN_PROGRESS))
    synced(machine, attempt_of(effects), BOTH, generation=2)
    taken = machine.take_pending()
    assert taken == Change(assigned=frozenset({TWO}))
    machine.handle(HeartbeatAnswered(2, ErrorCode.UNKNOWN_MEMBER_ID))
    machine.handle(Applied(taken))
    assert take_all(machine) == [Change(lost=BOTH)]
    assert machine.owned == frozenset()


def test_an_answer_of_another_generation_says_nothing() -> None:
    machine = classic()
    machine.handle(HeartbeatAnswered(0, ErrorCode.ILLEGAL_GENERATION))
    assert machine.state is State.STABLE


def test_heartbeats_do_not_pile_up() -> None:
    machine = classic()
    assert [type(effect) for effect in machine.handle(NOT_STUCK)] == [SendHeartbeat, NextHeartbeat]
    for _ in range(3):
        assert [type(effect) for effect in machine.handle(NOT_STUCK)] == [NextHeartbeat]
    for over in (HeartbeatFailed(), HeartbeatAnswered(1, 0)):
        machine.handle(over)
        assert [type(effect) for effect in machine.handle(NOT_STUCK)] == [SendHeartbeat, NextHeartbeat]


def test_what_changes_during_a_rebalance_makes_another() -> None:
    machine = classic(frozenset({ONE}))
    effects = machine.handle(HeartbeatAnswered(1, ErrorCode.REBALANCE_IN_PROGRESS))
    machine.handle(TopicsChanged())
    synced(machine, attempt_of(effects), frozenset({ONE}), generation=2)
    assert machine.state is State.JOINING


# The new protocol.


def test_partitions_are_given_up_before_others_are_taken_and_each_is_told() -> None:
    machine = new(frozenset({ONE}))
    machine.handle(TargetFound(frozenset({TWO})))
    change = machine.take_pending()
    assert change == Change(revoked=frozenset({ONE}))
    effects = machine.handle(Applied(change))
    assert [type(effect) for effect in effects] == [SendHeartbeat, Offered]
    assert take_all(machine) == [Change(assigned=frozenset({TWO}))]


def test_a_newer_target_overtakes_what_the_user_does_not_know_yet() -> None:
    machine = new(frozenset({ONE}))
    machine.handle(TargetFound(BOTH))
    machine.handle(TargetFound(frozenset({ONE})))
    assert take_all(machine) == []


@pytest.mark.parametrize("is_fenced", [False, True])
def test_what_others_got_while_the_user_was_told_of_it_is_never_owned(is_fenced: bool) -> None:
    machine = new(frozenset())
    machine.handle(TargetFound(BOTH))
    change = machine.take_pending()
    assert change == Change(assigned=BOTH)
    machine.handle(TargetFound(frozenset({ONE})))
    machine.handle(Applied(change))
    assert machine.owned == {ONE}
    if is_fenced:
        beat = machine.handle(NOT_STUCK)
        answer = heartbeat_of(ErrorCode.FENCED_MEMBER_EPOCH)
        machine.handle(Answered(attempt_of(beat) if beat else machine._attempt, answer))
        assert take_all(machine) == [Change(lost=BOTH)]
    else:
        assert take_all(machine) == [Change(lost=frozenset({TWO}))]
        assert machine.owned == {ONE}


class Coordinators:
    """Answers heartbeats when `answer` says so."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Any] = asyncio.Queue()
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def ask(self, request: Any, _: type) -> Any:
        self.asked.put_nowait(request)
        return await self.answer


def test_what_was_taken_while_a_heartbeat_without_it_was_on_its_way_is_lost_if_another_has_it() -> None:
    asyncio.run(_take_while_a_heartbeat_is_on_its_way())


async def _take_while_a_heartbeat_is_on_its_way() -> None:
    """The coordinator had no reason to wait for it; under the epoch of the answer it could still be committed."""
    machine, coordinator = new(frozenset({ONE})), Coordinators()
    requests = ConsumerRequests(machine, coordinator, Subscription(frozenset({"t"})))  # type: ignore[arg-type]
    requests._ids, requests._topics = {b"id": "t"}, frozenset({"t"})
    machine.handle(TargetFound(BOTH))
    change = machine.take_pending()
    assert change == Change(assigned=frozenset({TWO}))
    [beat] = machine.handle(NOT_STUCK)
    assert isinstance(beat, SendHeartbeat)
    answered = asyncio.create_task(requests.send(beat._replace(is_full=True)))
    named = (await coordinator.asked.get()).topic_partitions
    machine.handle(Applied(change))
    rows = [TopicPartitions(topic_id=b"id", partitions=[0])]
    assert named == rows
    coordinator.answer.set_result(heartbeat_of(epoch=2, rows=rows))
    machine.handle(await answered)
    assert (machine.state, machine.epoch) == (State.LOSING, 1)
    assert take_all(machine) == [Change(lost=BOTH)]


def test_one_heartbeat_at_a_time_and_all_is_said_again_after_trouble() -> None:
    machine = new()
    [beat] = machine.handle(NOT_STUCK)
    assert beat == SendHeartbeat(beat.attempt, is_full=False)  # type: ignore[union-attr]
    assert machine.handle(TopicsChanged()) == []
    [retry] = machine.handle(RequestFailed(attempt_of([beat]), ConnectionLost("cut")))
    [full] = machine.handle(RetryDue(attempt_of([retry])))
    assert full == SendHeartbeat(attempt_of([full]), is_full=True)
    # What was to be said meanwhile is in it.
    assert machine.handle(Answered(attempt_of([full]), heartbeat_of(epoch=2))) == [NextHeartbeat(500)]
    assert machine.epoch == 2


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_who_is_fenced_joins_again_when_his_user_knows(code: ErrorCode) -> None:
    machine = new()
    machine.handle(Answered(attempt_of(machine.handle(NOT_STUCK)), heartbeat_of(code)))
    assert (machine.state, machine.epoch) == (State.LOSING, 1)
    change = machine.take_pending()
    assert change == Change(lost=BOTH)
    [beat] = machine.handle(Applied(change))
    assert (machine.epoch, beat) == (0, SendHeartbeat(attempt_of([beat]), is_full=True))


# Both.


@pytest.mark.parametrize("made", [classic, new])
def test_who_is_stuck_leaves_and_comes_back_when_his_user_does(made: Any) -> None:
    machine = made()
    assert SendLeave() in machine.handle(STUCK)
    assert take_all(machine) == [Change(lost=BOTH)]
    assert (machine.state, machine.owned) == (State.JOINING, frozenset())
    idle = made(frozenset()) if made is new else None
    if idle is not None:
        idle.handle(STUCK)
        assert idle.state is State.AWAY
        assert idle.handle(NOT_STUCK) == []
        assert isinstance(idle.handle(Polled())[0], SendHeartbeat)


@pytest.mark.parametrize("made", [classic, new])
@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.FENCED_INSTANCE_ID])
def test_what_does_not_pass_is_told_and_tried_again_unless_it_stays(made: Any, code: ErrorCode) -> None:
    machine: MemberMachine = made()
    if isinstance(machine, ClassicMachine):
        machine.handle(HeartbeatAnswered(1, code))
    else:
        machine.handle(Answered(attempt_of(machine.handle(NOT_STUCK)), heartbeat_of(code)))
    assert machine.state is State.FAILED
    assert isinstance(machine.error, ServerError)
    machine.handle(ErrorTold())
    if code is ErrorCode.FENCED_INSTANCE_ID:
        assert (machine.state, machine.error is None) == (State.FAILED, False)
    else:
        assert take_all(machine) == [Change(lost=BOTH)]
        assert machine.error is None


@pytest.mark.parametrize("made", [classic, new])
def test_closed_is_closed(made: Any) -> None:
    machine = made()
    machine.handle(Closed())
    for event in (NOT_STUCK, Polled(), TopicsChanged(), Start(), ErrorTold()):
        assert machine.handle(event) == []
    assert machine.state is State.CLOSED
