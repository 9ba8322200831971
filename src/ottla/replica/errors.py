"""What a partition refuses, each with the number the protocol has for it."""

from __future__ import annotations

from ottla.log.errors import LogError
from ottla.wire.errors import ErrorCode


class FencedLeaderEpoch(LogError):
    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(LogError):
    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class DeletionRefused(LogError):
    code = ErrorCode.POLICY_VIOLATION


class NotLeader(LogError):
    """This replica does not lead the partition, or does no more."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class NotAvailableYet(LogError):
    """A follower has not copied what a reader has seen elsewhere."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class NotAcknowledged(LogError):
    """It was appended, and nobody knows whether it lasts: too few replicas are left, or they take too long."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class AppendRefused(LogError):
    """The partition is not led here, or has too few replicas in sync."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
