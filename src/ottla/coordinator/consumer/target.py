"""What each member of a consumer group is to have, in which epoch of the group.

Small groups get a new target within a heartbeat. That of a large one is computed and written in steps, between which
others have their turn: members go on with the target they have. Its epoch is written last, so a target that was not
finished when the coordinator fell over is computed anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from ottla.coordinator.consumer.assignors import ASSIGNORS, Assignor, AssignorSteps, Partitions, Subscriber, assigned
from ottla.coordinator.consumer.assignors.subscriber import NO_PARTITIONS, Pause
from ottla.coordinator.consumer.member import Member
from ottla.coordinator.consumer.records import write_target, write_target_epoch
from ottla.coordinator.consumer.settings import ConsumerSettings
from ottla.coordinator.consumer.subscriptions import Subscriptions
from ottla.coordinator.operation import Operation, Work

FEW = 2000  # members and partitions that are assigned within a heartbeat
NEVER_MS = 0  # when a target was computed: a new one may be computed at once
WRITTEN_AT_ONCE = 2000  # partitions of targets
MEMBER_WEIGHT = 20  # what the record of a member costs, in partitions


HeldPartitions: TypeAlias = frozenset[tuple[bytes, int]]


class TargetAssignment:
    """Epoch, time and targets last, and change only by a replayed record."""

    def __init__(self, group_id: str, settings: Callable[[str], ConsumerSettings]) -> None:
        self._group_id = group_id
        self._settings = settings
        self.epoch = 0
        self.timestamp_ms = 0
        self.by_member: dict[str, Partitions] = {}
        self.is_being_computed = False  # a mark, made anew
        self.held: HeldPartitions | None = None  # what nobody is to have yet, another mark; None: to be found out

    def of(self, member_id: str) -> Mapping[bytes, frozenset[int]]:
        return self.by_member.get(member_id, NO_PARTITIONS)

    @property
    def size(self) -> int:
        """How many partitions somebody is to have."""
        return sum([len(indexes) for partitions in self.by_member.values() for indexes in partitions.values()])

    def partitions(self) -> HeldPartitions:
        """All that somebody is to have."""
        return frozenset(
            (topic_id, index)
            for partitions in self.by_member.values()
            for topic_id, indexes in partitions.items()
            for index in indexes
        )

    # Replay

    def replay(self, member_id: str, partitions: Partitions | None) -> None:
        if partitions is None:
            self.by_member.pop(member_id, None)
        else:
            self.by_member[member_id] = partitions

    def replay_epoch(self, epoch: int, timestamp_ms: int) -> None:
        self.epoch, self.timestamp_ms = epoch, timestamp_ms

    # A new target

    def preferred_assignor(self, members: Iterable[Member]) -> str:
        """The one that most members ask for; of two that as many ask for, the one that the broker names first."""
        votes = Counter(member.profile.server_assignor for member in members)
        return max(self._settings(self._group_id).assignors, key=lambda name: votes[name])

    def is_due(self, group_epoch: int, now_ms: int) -> bool:
        """Whether the group's epoch needs a target, though not too often: joiners tend to come together."""
        if group_epoch <= self.epoch or self.is_being_computed:
            return False
        age_ms = now_ms - self.timestamp_ms
        interval_ms = self._settings(self._group_id).assignment_interval_ms
        return not 0 <= age_ms < interval_ms  # below 0: the clock was set back

    def assign(
        self,
        operation: Operation,
        group_epoch: int,
        members: Mapping[str, Member],
        subscriptions: Subscriptions,
        is_there: Callable[[], bool],
    ) -> None:
        """`is_there`: whether the group still is, where that takes a while."""
        counts = subscriptions.partition_counts()
        steps = self._steps(ASSIGNORS[self.preferred_assignor(members.values())], members, subscriptions, counts)
        if len(members) + sum(counts.values()) <= FEW:
            for member_id, partitions in _without(self.held, assigned(steps)).items():
                if partitions != self.by_member.get(member_id):
                    write_target(operation, self._group_id, member_id, partitions)
            write_target_epoch(operation, self._group_id, group_epoch, operation.now_ms)
            return
        if not self.epoch:  # in which nobody can be: the first members begin with nothing in the one before
            write_target_epoch(operation, self._group_id, group_epoch - 1, NEVER_MS)
        self.is_being_computed = True
        operation.go_on_with(_Computation(self, self._group_id, steps, group_epoch, members, is_there).events())

    def _steps(
        self,
        assignor: Assignor,
        members: Mapping[str, Member],
        subscriptions: Subscriptions,
        counts: Mapping[bytes, int],
    ) -> AssignorSteps:
        """What an assignor does, and before it what it works with. Topics may come and go between two steps."""
        by_subscription: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}  # most members have the same
        subscribers: dict[str, Subscriber] = {}
        pause = Pause()
        for member_id, member in list(members.items()):
            profile = member.profile
            subscription = profile.topic_names, profile.regex
            topic_ids = by_subscription.get(subscription)
            if topic_ids is None:
                topic_ids = by_subscription[subscription] = subscriptions.ids_of(profile).intersection(counts)
                if pause.is_due(len(topic_ids)):
                    yield
            subscribers[member_id] = Subscriber(topic_ids, self.of(member_id), profile.instance_id)
        return (yield from assignor(subscribers, counts))


def _without(held: HeldPartitions | None, computed: dict[str, Partitions]) -> dict[str, Partitions]:
    """The targets without partitions that nobody is to have yet."""
    if not held:
        return computed
    return {
        member_id: {
            topic_id: left
            for topic_id, indexes in partitions.items()
            if (left := frozenset(index for index in indexes if (topic_id, index) not in held))
        }
        for member_id, partitions in computed.items()
    }


class _Computation:
    """A target on its way, one event after the other. Members that are gone by then are passed over."""

    def __init__(
        self,
        target: TargetAssignment,
        group_id: str,
        steps: AssignorSteps,
        group_epoch: int,
        members: Mapping[str, Member],
        is_there: Callable[[], bool],
    ) -> None:
        self._target = target
        self._group_id = group_id
        self._steps = steps
        self._group_epoch = group_epoch
        self._members = members  # as they are at any time
        self._held = target.held  # as with the counts: the mark may go while this is computed
        self._is_there = is_there
        self._computed: dict[str, Partitions] | None = None
        self._left: list[tuple[str, Partitions]] = []  # to be written, the last first

    def events(self) -> Work:
        while self._computed is None:
            yield self._compute
        self._left = list(reversed(self._computed.items()))
        while self._left:
            yield self._write
        yield self._end

    def _compute(self, _operation: Operation) -> None:
        try:
            next(self._steps)
        except StopIteration as end:
            self._computed = _without(self._held, end.value)

    def _write(self, operation: Operation) -> None:
        room = WRITTEN_AT_ONCE
        while self._left and room > 0:
            member_id, partitions = self._left.pop()
            room -= 1
            is_new = member_id in self._members and partitions != self._target.by_member.get(member_id)
            if is_new and self._is_there():
                write_target(operation, self._group_id, member_id, partitions)
                room -= MEMBER_WEIGHT + sum(map(len, partitions.values()))

    def _end(self, operation: Operation) -> None:
        """If a member went, it may have left its share to another id: then the next heartbeat computes anew."""
        assert self._computed is not None
        self._target.is_being_computed = False
        if self._is_there() and self._computed.keys() <= self._members.keys():
            write_target_epoch(operation, self._group_id, self._group_epoch, operation.now_ms)
