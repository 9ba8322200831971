"""A member of a consumer group: what it told of itself, and how far it has come towards what it is to have.

Both are values that are replaced as a whole, each by a record of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

from ottla.coordinator.consumer.assignors import Partitions
from ottla.wire.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
)

NEW_EPOCH = 0
LEFT_EPOCH = -1
AWAY_EPOCH = -2  # of a static member that said it would come back
NO_EPOCH = -1

Held: TypeAlias = dict[bytes, dict[int, int]]
"""Partitions by topic id, each with the epoch in which it was given. A topic without any is not there."""


class MemberState(enum.IntEnum):
    """What a member is about; the numbers are those of its record."""

    STABLE = 0
    UNREVOKED = 1  # it has yet to let go of partitions
    UNRELEASED = 2  # it waits for partitions that others have yet to let go of
    UNKNOWN = 127  # a later release wrote something else

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class ClassicSide(NamedTuple):
    """What a member of the classic protocol brought along when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Profile(NamedTuple):
    """What a member told of itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicSide | None = None


class Progress(NamedTuple):
    """How far a member has come."""

    epoch: int = NEW_EPOCH
    previous_epoch: int = NO_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Held = {}  # noqa: RUF012 - values are never changed in place
    revoking: Held = {}  # noqa: RUF012

    def is_reconciled(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def holds(self, topic_id: bytes, number: int) -> int | None:
        """The epoch in which a partition was given that has not been taken back yet; None if it has it not."""
        epoch = self.assigned.get(topic_id, {}).get(number)
        return self.revoking.get(topic_id, {}).get(number) if epoch is None else epoch

    def partitions(self, unlike: Progress | None = None) -> Iterable[tuple[bytes, int]]:
        """All that it may still be working on; of topics of which that is not the same there."""
        others = Progress() if unlike is None else unlike
        for held, other in ((self.assigned, others.assigned), (self.revoking, others.revoking)):
            for topic_id, numbers in held.items():
                if other.get(topic_id) != numbers:
                    for number in numbers:
                        yield topic_id, number


class Member(NamedTuple):
    member_id: str
    profile: Profile = Profile()
    progress: Progress = Progress()

    @property
    def is_classic(self) -> bool:
        return self.profile.classic is not None

    @property
    def is_away(self) -> bool:
        return self.progress.epoch == AWAY_EPOCH


def partitions_of(held: Held) -> Partitions:
    return {topic_id: frozenset(numbers) for topic_id, numbers in held.items()}


# The records


def profile_record(profile: Profile) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=sorted(profile.topic_names),
        subscribed_topic_regex=profile.regex,
        rebalance_timeout_ms=profile.rebalance_timeout_ms,
        server_assignor=profile.server_assignor,
        classic_member_metadata=None
        if profile.classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=profile.classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in profile.classic.protocols
            ],
        ),
    )


def profile_of(value: ConsumerGroupMemberMetadataValue) -> Profile:
    classic = value.classic_member_metadata
    return Profile(
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        frozenset(value.subscribed_topic_names),
        value.subscribed_topic_regex or "",
        value.rebalance_timeout_ms,
        value.server_assignor,
        None
        if classic is None
        else ClassicSide(
            classic.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols),
        ),
    )


def progress_record(progress: Progress) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=progress.epoch,
        previous_member_epoch=progress.previous_epoch,
        state=progress.state,
        assigned_partitions=_held_record(progress.assigned),
        partitions_pending_revocation=_held_record(progress.revoking),
    )


def progress_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> Progress:
    return Progress(
        value.member_epoch,
        value.previous_member_epoch,
        MemberState(value.state),
        _held(value.assigned_partitions, value.member_epoch),
        _held(value.partitions_pending_revocation, value.member_epoch),
    )


_current_partitions: Any = CurrentTopicPartitions  # by positions, which costs half as much as by names


def _held_record(held: Held) -> list[CurrentTopicPartitions]:
    topics = []
    for topic_id, numbers in held.items():
        ordered = sorted(numbers)
        topics.append(_current_partitions(topic_id, ordered, [numbers[number] for number in ordered]))
    return topics


def _held(topics: list[CurrentTopicPartitions], member_epoch: int) -> Held:
    """Releases before 4.3 noted no epochs for single partitions."""
    held: Held = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        held[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return held
