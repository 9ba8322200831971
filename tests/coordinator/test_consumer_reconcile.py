"""The table of what a heartbeat does to a member, state by state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.consumer.assignors import Partitions
from ottla.coordinator.consumer.member import Held, MemberState, Progress, progress_of, progress_record
from ottla.coordinator.consumer.reconcile import Goal, reconcile

T, U = (letter * 16 for letter in (b"t", b"u"))
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED


def held(epoch: int, **topics: str) -> Held:
    """t="012": partitions 0, 1 and 2 of the topic t, given in this epoch."""
    return {name.encode() * 16: {int(digit): epoch for digit in digits} for name, digits in topics.items()}


def partitions(**topics: str) -> Partitions:
    return {topic_id: frozenset(numbers) for topic_id, numbers in held(0, **topics).items()}


def goal(
    epoch: int = 5,
    *,
    owned: Partitions | None = None,
    taken: str = "",
    subscribed: tuple[bytes, ...] = (T, U),
    has_changed: bool = False,
    **target: str,
) -> Goal:
    """`taken`: partitions of t that others are at work on."""
    others = set(map(int, taken))
    return Goal(
        epoch,
        partitions(**target),
        frozenset(subscribed),
        has_changed,
        lambda: owned,
        lambda topic_id, number: topic_id != T or number not in others,
    )


CASES = {
    "nothing is new": (Progress(5, 4, STABLE, held(3, t="01")), goal(t="01"), Progress(5, 4, STABLE, held(3, t="01"))),
    "a new member takes what is free": (Progress(), goal(t="01"), Progress(5, 0, STABLE, held(5, t="01"))),
    "what is kept keeps its epoch": (
        Progress(4, 3, STABLE, held(3, t="0")),
        goal(t="01"),
        Progress(5, 4, STABLE, {T: {0: 3, 1: 5}}),
    ),
    "it waits for what others have": (
        Progress(4, 3, STABLE, held(3, t="0")),
        goal(t="012", taken="12"),
        Progress(5, 4, UNRELEASED, held(3, t="0")),
    ),
    "it takes what was freed meanwhile": (
        Progress(5, 4, UNRELEASED, held(3, t="0")),
        goal(t="012", taken="2"),
        Progress(5, 5, UNRELEASED, {T: {0: 3, 1: 5}}),
    ),
    "it lets go first, in its old epoch": (
        Progress(4, 3, STABLE, held(3, t="01")),
        goal(t="12"),
        Progress(4, 4, UNREVOKED, held(3, t="1"), held(3, t="0")),
    ),
    "what it does not own any more need not be let go of": (
        Progress(4, 3, STABLE, held(3, t="01")),
        goal(t="12", owned={}),
        Progress(5, 4, STABLE, {T: {1: 3, 2: 5}}),
    ),
    "it does not say what it owns": (
        Progress(4, 4, UNREVOKED, held(3, t="1"), held(3, t="0")),
        goal(t="1"),
        Progress(4, 4, UNREVOKED, held(3, t="1"), held(3, t="0")),
    ),
    "it still owns some of it": (
        Progress(4, 4, UNREVOKED, held(3, t="1"), held(3, t="02")),
        goal(t="1", owned=partitions(t="12")),
        Progress(4, 4, UNREVOKED, held(3, t="1"), held(3, t="02")),
    ),
    "it let go": (
        Progress(4, 4, UNREVOKED, held(3, t="1"), held(3, t="0")),
        goal(t="1", owned=partitions(t="1")),
        Progress(5, 4, STABLE, held(3, t="1")),
    ),
    "it let go, and gets it back": (
        Progress(4, 4, UNREVOKED, held(3, t="1"), held(3, t="0")),
        goal(t="01", owned=partitions(t="1")),
        Progress(5, 4, STABLE, {T: {0: 5, 1: 3}}),
    ),
    "it let go, and there is more to let go of by now": (
        Progress(4, 4, UNREVOKED, held(3, t="1"), held(3, t="0")),
        goal(u="0", owned=partitions(t="1")),
        Progress(4, 4, UNREVOKED, {}, held(3, t="1")),
    ),
    "it unsubscribes, and there is no new target yet": (
        Progress(5, 4, STABLE, {**held(3, t="0"), **held(4, u="1")}),
        goal(t="0", u="1", subscribed=(T,), has_changed=True),
        Progress(5, 5, UNREVOKED, held(3, t="0"), held(4, u="1")),
    ),
    "it unsubscribes from what it does not own": (
        Progress(5, 4, STABLE, {**held(3, t="0"), **held(4, u="1")}),
        goal(t="0", u="1", subscribed=(T,), has_changed=True, owned=partitions(t="0")),
        Progress(5, 5, STABLE, held(3, t="0")),
    ),
    "it unsubscribes while it lets go of other things": (
        Progress(4, 4, UNREVOKED, held(3, t="0", u="1"), held(3, t="2")),
        goal(t="0", subscribed=(T,), has_changed=True),
        Progress(4, 4, UNREVOKED, held(3, t="0"), held(3, t="2", u="1")),
    ),
    "a target beyond its subscription is not for it": (Progress(), goal(t="0", subscribed=(U,)), Progress(5, 0)),
    "of an unknown state, it begins anew": (
        Progress(4, 3, MemberState.UNKNOWN, held(3, t="01")),
        goal(t="1", owned={}),
        Progress(5, 4, STABLE, held(3, t="1")),
    ),
}


@pytest.mark.parametrize(("before", "aimed_at", "after"), CASES.values(), ids=CASES.keys())
def test_a_heartbeat_brings_a_member_on(before: Progress, aimed_at: Goal, after: Progress) -> None:
    assert reconcile(before, aimed_at) == after


NUMBERS = st.sets(st.integers(0, 9))
HELD = st.dictionaries(st.sampled_from([T, U]), st.dictionaries(st.integers(0, 9), st.integers(0, 9), min_size=1))


@given(st.builds(Progress, st.integers(-2, 9), st.integers(-1, 9), st.sampled_from(MemberState), HELD, HELD))
def test_progress_survives_its_record(progress: Progress) -> None:
    assert progress_of(progress_record(progress)) == progress


@given(
    st.sampled_from([STABLE, UNREVOKED, UNRELEASED]),
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.none() | NUMBERS,
)
def test_a_member_never_gets_what_is_taken_nor_loses_what_it_works_on(
    state: MemberState,
    assigned: set[int],
    revoking: set[int],
    target: set[int],
    taken: set[int],
    owned: set[int] | None,
) -> None:
    """It walks on until it rests; on the way it is never given what others have."""
    revoking -= assigned
    taken -= assigned | revoking
    if state is not UNREVOKED:
        revoking = set()
    before = Progress(4, 3, state, _held(assigned), _held(revoking))
    works_on = None if owned is None else {T: frozenset(owned)}
    aimed_at = Goal(
        5, {T: frozenset(target)}, frozenset({T}), False, lambda: works_on, lambda _, number: number not in taken
    )
    after = reconcile(before, aimed_at)
    now, letting_go = (set(held.get(T, ())) for held in (after.assigned, after.revoking))
    assert not now & letting_go
    assert not (now | letting_go) & taken
    at_work = (assigned | revoking) & (owned if owned is not None else assigned | revoking)
    assert at_work <= now | letting_go, "nobody else may get what it works on"
    if after.state is STABLE:
        assert now == target


def _held(numbers: set[int]) -> Held:
    return {T: dict.fromkeys(numbers, 3)} if numbers else {}
