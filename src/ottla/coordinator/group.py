"""What offsets, listings and deletions need to know of a group, whichever protocol its members speak."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_groups import ListedGroup

MOST_INT = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """They may change at any time, so machines ask for them whenever they need one."""

    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3000
    max_size: int = MOST_INT
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000


class Client(NamedTuple):
    """Who is behind a request."""

    client_id: str
    client_host: str  # "/1.2.3.4"


class OffsetToCommit(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class Committer(NamedTuple):
    """Who commits offsets: a member in its generation or epoch, or nobody in particular (-1)."""

    member_id: str
    instance_id: str | None
    epoch: int
    version: int  # of the request
    is_transactional: bool = False


class Group(ABC):
    type_name: ClassVar[str]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    @property
    @abstractmethod
    def state_name(self) -> str:
        """As it is listed and described."""

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """Empty if the group has none yet."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members, so that it can be deleted."""

    @property
    @abstractmethod
    def member_count(self) -> int: ...

    @abstractmethod
    def check_commit(self, committer: Committer, offsets: Sequence[OffsetToCommit]) -> ErrorCode:
        """Whether these offsets may be committed."""

    @abstractmethod
    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether offsets may be read by this member."""

    def check_offset_delete(self) -> ErrorCode:
        """Whether single offsets may be deleted, as far as nobody is subscribed to their topics."""
        return ErrorCode.NONE

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member is: then the topic's offsets neither expire nor can be deleted."""

    @abstractmethod
    def offset_age_from_ms(self, commit_timestamp_ms: int) -> int | None:
        """The time from which the age of an offset counts; None if it does not age."""

    @abstractmethod
    def write_tombstones(self, operation: Operation) -> None:
        """Take the group, which is empty, out of the log."""

    @abstractmethod
    def member_ids(self) -> list[str]: ...

    @abstractmethod
    def set_timers(self, operation: Operation, member_ids: Iterable[str]) -> None:
        """Begin to look after members that a log has told of; those that are there no more are passed over."""

    @abstractmethod
    def waiting(self) -> list[Reply]:
        """Those whose answers are yet to come."""


def list_groups(groups: Iterable[Group], states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
    """Those in one of the states and of one of the types, where any are named; small letters will do."""
    wanted_states = {name.lower() for name in states}
    wanted_types = {name.lower() for name in types}
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state_name,
            group_type=group.type_name,
        )
        for group in groups
        if (not wanted_states or group.state_name.lower() in wanted_states)
        and (not wanted_types or group.type_name in wanted_types)
    ]
