"""Offsets of a group, and on whose behalf they are committed. Plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from ottla.client.checks import check_leader_epoch, check_offset, check_partition, check_texts, why_no_topic


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Offset(NamedTuple):
    """The next record to read, and what its committer wants to remember."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


def as_place(given: Any) -> TopicPartition:
    """A partition as users name it: a TopicPartition, or a pair."""
    if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[0], str):
        raise TypeError(f"a partition is a TopicPartition(topic, number), not {given!r}")
    topic, partition = given
    if why := why_no_topic(topic):
        raise ValueError(why)
    check_partition(partition)
    return TopicPartition(topic, partition)


def as_places(given: Any) -> list[TopicPartition]:
    if isinstance(given, str | TopicPartition) or not isinstance(given, Iterable):
        raise TypeError(f"partitions are a list of TopicPartition, not {given!r}; for one: [TopicPartition(...)]")
    return [as_place(one) for one in given]


def as_offsets(given: Any) -> dict[TopicPartition, Offset]:
    """Offsets as users give them: by partition, an int or an Offset."""
    if not isinstance(given, Mapping):
        raise TypeError(f"offsets are a dict by TopicPartition, not {given!r}")
    offsets: dict[TopicPartition, Offset] = {}
    for place, one in given.items():
        offset = offsets[as_place(place)] = one if isinstance(one, Offset) else Offset(one)
        check_offset(offset.offset)
        check_texts(metadata=offset.metadata or None)
        check_leader_epoch(offset.leader_epoch)
    return offsets


class Membership(NamedTuple):
    """As whom to commit: only the present member of the present generation may."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class GroupOffsets(NamedTuple):
    membership: Membership
    offsets: Mapping[TopicPartition, Offset]


class HasGroupOffsets(Protocol):
    """A consumer, of either face."""

    def group_offsets(self) -> GroupOffsets:
        """How far the consumer has read, to be committed in a transaction. Does not block."""
