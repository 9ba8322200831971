"""What offsets, listings and deletions need to know of a group, whichever protocol its members speak."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode


class Client(NamedTuple):
    """Who is behind a request."""

    client_id: str
    client_host: str  # "/1.2.3.4"


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
    def check_commit(self, committer: Committer, partitions: Iterable[tuple[bytes, int]]) -> ErrorCode:
        """Whether these offsets may be committed; `partitions`: by topic id and number, looked at only if need be."""

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
    def set_timers(self, operation: Operation) -> None:
        """Begin to look after members that a log has told of."""

    @abstractmethod
    def waiting(self) -> list[Reply]:
        """Those whose answers are yet to come."""
