"""How a member walks from what it has to what it is to have: let go first, then take what the others have let go of.

A table of what a heartbeat does in each state, without side effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from ottla.coordinator.consumer.member import Held, MemberState, Progress

Owned: TypeAlias = Callable[[], Mapping[bytes, frozenset[int]] | None]
"""What a member says it works on; None: it did not say. It may be much, and is looked at only where that matters."""


class Goal(NamedTuple):
    """Where a member is to go, and what it says it works on at the moment."""

    epoch: int
    target: Mapping[bytes, frozenset[int]]
    subscribed: frozenset[bytes]  # the topics that exist and that it subscribes to
    has_changed: bool  # it subscribes to something else than before
    owned: Owned
    is_free: Callable[[bytes, int], bool]  # whether nobody else works on a partition


def reconcile(progress: Progress, goal: Goal) -> Progress:
    """What becomes of a member with a heartbeat."""
    return _STEPS[progress.state](progress, goal)


def owns_any(told: Owned, held: Held) -> bool:
    """Whether a member works on some of these; one that does not say may."""
    if not held:
        return False
    owned = told()
    if owned is None:
        return True
    return any(not owned.get(topic_id, frozenset()).isdisjoint(numbers) for topic_id, numbers in held.items())


def _stable(progress: Progress, goal: Goal) -> Progress:
    if progress.epoch != goal.epoch:
        return _next(progress, goal)
    return _without_unsubscribed(progress, goal) if goal.has_changed else progress


def _unrevoked(progress: Progress, goal: Goal) -> Progress:
    if goal.has_changed:
        progress = _without_unsubscribed(progress, goal)
    if goal.owned() is None or owns_any(goal.owned, progress.revoking):
        return progress
    return _next(progress, goal)


def _next(progress: Progress, goal: Goal) -> Progress:
    """A step towards the target: what it has to let go of, or else the new epoch with what is free."""
    kept: Held = {}
    revoking: Held = {}
    for topic_id, numbers in progress.assigned.items():
        target = goal.target.get(topic_id, frozenset()) if topic_id in goal.subscribed else frozenset[int]()
        if target.issuperset(numbers):
            kept[topic_id] = numbers
            continue
        for number, epoch in numbers.items():
            held = kept if number in target else revoking
            held.setdefault(topic_id, {})[number] = epoch
    if owns_any(goal.owned, revoking):
        return Progress(progress.epoch, progress.epoch, MemberState.UNREVOKED, kept, revoking)
    state = MemberState.STABLE
    for topic_id, target in goal.target.items():
        if topic_id not in goal.subscribed:
            continue
        before = kept.get(topic_id, {})
        if len(before) == len(target):
            continue
        free = {number: goal.epoch for number in target.difference(before) if goal.is_free(topic_id, number)}
        if free:
            kept[topic_id] = before | free
        if len(before) + len(free) < len(target):
            state = MemberState.UNRELEASED
    return Progress(goal.epoch, progress.epoch, state, kept, {})


def _without_unsubscribed(progress: Progress, goal: Goal) -> Progress:
    """Take back at once what it no longer subscribes to, while there is no new target yet."""
    kept = {topic_id: numbers for topic_id, numbers in progress.assigned.items() if topic_id in goal.subscribed}
    if len(kept) == len(progress.assigned):
        return progress
    revoking = {topic_id: dict(numbers) for topic_id, numbers in progress.revoking.items()}
    for topic_id, numbers in progress.assigned.items():
        if topic_id not in kept:
            revoking.setdefault(topic_id, {}).update(numbers)
    if owns_any(goal.owned, revoking):
        return Progress(progress.epoch, progress.epoch, MemberState.UNREVOKED, kept, revoking)
    return Progress(progress.epoch, progress.epoch, progress.state, kept, {})


_STEPS: dict[MemberState, Callable[[Progress, Goal], Progress]] = {
    MemberState.STABLE: _stable,
    MemberState.UNREVOKED: _unrevoked,
    MemberState.UNRELEASED: _next,
    MemberState.UNKNOWN: _next,  # only one that owns nothing gets here
}
