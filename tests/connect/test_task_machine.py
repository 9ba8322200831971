"""The life of a task."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.task_machine import (
    FENCED_PAUSE_MS,
    Assigned,
    Ended,
    Progressed,
    Retries,
    Revoked,
    Start,
    State,
    Stop,
    TaskMachine,
    Tick,
    Wanted,
)

RUN, PAUSE, RESTART = Wanted(False, 0), Wanted(True, 0), Wanted(False, 1)
FAILED = Ended("away")


def machine_after(*events: Any, retries: Retries = Retries(2, 100)) -> TaskMachine:  # noqa: B008 - immutable
    machine = TaskMachine(retries)
    for event in events:
        machine.handle(event, 0)
    return machine


@pytest.mark.parametrize(
    ("before", "event", "state", "effects"),
    [
        ([RUN], Assigned(), State.RUNNING, [Start()]),
        ([PAUSE], Assigned(), State.PAUSED, []),
        ([RUN, Assigned()], PAUSE, State.STOPPING, [Stop()]),
        ([RUN, Assigned(), PAUSE], Ended(), State.PAUSED, []),
        ([RUN, Assigned(), PAUSE, Ended()], RUN, State.RUNNING, [Start()]),
        ([RUN, Assigned(), PAUSE], RUN, State.STOPPING, []),
        ([RUN, Assigned(), PAUSE, RUN], Ended(), State.RUNNING, [Start()]),
        ([RUN, Assigned()], Revoked(), State.STOPPING, [Stop()]),
        ([RUN, Assigned(), Revoked()], Ended(), State.IDLE, []),
        ([RUN, Assigned(), Revoked()], FAILED, State.IDLE, []),
        ([RUN, Assigned()], FAILED, State.WAITING, []),
        ([RUN, Assigned(), FAILED], Revoked(), State.IDLE, []),
        ([RUN, Assigned(), FAILED], PAUSE, State.PAUSED, []),
        ([RUN, Assigned()], Ended("no", is_permanent=True), State.FAILED, []),
        ([RUN, Assigned(), Ended("no", is_permanent=True)], Tick(), State.FAILED, []),
        ([RUN, Assigned(), Ended("no", is_permanent=True)], RESTART, State.RUNNING, [Start()]),
        ([RUN, Assigned(), Ended("no", is_permanent=True)], RUN, State.FAILED, []),
        ([RUN, Assigned()], RESTART, State.STOPPING, [Stop()]),
        ([RUN, Assigned(), RESTART], Ended(), State.RUNNING, [Start()]),
        ([RUN, Assigned()], RUN, State.RUNNING, []),
        ([Wanted(False, 7)], Assigned(), State.RUNNING, [Start()]),
    ],
)
def test_what_is_done(before: Sequence[Any], event: Any, state: State, effects: list[Any]) -> None:
    machine = machine_after(*before)
    assert machine.handle(event, 0) == effects
    assert machine.state is state


def test_what_fails_is_tried_again_later_and_later_and_then_no_more() -> None:
    machine = machine_after(RUN, Assigned())
    for pause_ms in (100, 200):
        machine.handle(FAILED, 1_000)
        assert machine.state is State.WAITING
        assert machine.handle(Tick(), 1_000 + pause_ms - 1) == []
        assert machine.handle(Tick(), 1_000 + pause_ms) == [Start()]
    machine.handle(FAILED, 5_000)
    assert (machine.state, machine.error, machine.error_at_ms) == (State.FAILED, "away", 5_000)


def test_progress_begins_the_count_anew() -> None:
    machine = machine_after(RUN, Assigned())
    for _ in range(20):
        machine.handle(FAILED, 0)
        machine.handle(Tick(), 10_000)
        machine.handle(Progressed(), 10_000)
    assert machine.state is State.RUNNING


def test_who_was_fenced_waits_for_the_group_to_say_who_has_the_task() -> None:
    machine = machine_after(RUN, Assigned(), retries=Retries(0, 1))
    machine.handle(Ended("fenced", is_fenced=True), 0)
    assert machine.handle(Tick(), FENCED_PAUSE_MS - 1) == []
    assert machine.handle(Tick(), FENCED_PAUSE_MS) == [Start()]


EVENTS = st.sampled_from(
    [Assigned(), Revoked(), RUN, PAUSE, RESTART, Progressed(), Tick(), FAILED, Ended(), Ended("x", is_permanent=True)]
)


@given(st.lists(EVENTS, max_size=40))
def test_there_is_never_more_than_one_thread(events: list[Any]) -> None:
    """Whatever happens: it is started only when the last one has ended, and ends where it does not belong."""
    machine, threads, now_ms = TaskMachine(Retries(3, 10)), 0, 0
    is_assigned = False
    for event in events:
        now_ms += 50
        if isinstance(event, Ended):
            if not threads:
                continue
            threads -= 1
        is_assigned = (is_assigned or isinstance(event, Assigned)) and not isinstance(event, Revoked)
        for effect in machine.handle(event, now_ms):
            threads += isinstance(effect, Start)
        assert threads <= 1
        assert threads == (machine.state in (State.RUNNING, State.STOPPING))
        if not is_assigned:
            assert machine.state in (State.IDLE, State.STOPPING)
