"""Offsets of a group, and on whose behalf they are committed. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


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
