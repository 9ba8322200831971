"""What the log refuses, each with the code the protocol has for it."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from ottla.wire.errors import ApiError, ErrorCode

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE})
PASSING = FULL | OUT_OF_FILES
"""Errors of the system that may be over soon: a full disk, too many open files."""


def is_lasting(error: OSError) -> bool:
    """Whether the disk is at fault, and not only for a moment."""
    return error.errno is not None and error.errno not in PASSING


class LogError(ApiError):
    """An operation was refused and changed nothing."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str = "") -> None:
        super().__init__(self.code, message)


class OffsetOutOfRange(LogError):
    code = ErrorCode.OFFSET_OUT_OF_RANGE


class OutOfOrderSequence(LogError):
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpoch(LogError):
    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTransactionState(LogError):
    code = ErrorCode.INVALID_TXN_STATE


class CoordinatorFenced(LogError):
    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class StorageFailed(LogError):
    """The disk failed, or failed before: the log takes no more writes until it is opened again."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class LogDeleted(StorageFailed):
    """The topic was deleted while somebody had to do with its log."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class StaleLeaderEpoch(LogError):
    """Records of a leader that has been replaced: the log never goes back to an earlier epoch."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnexpectedOffset(LogError):
    """A follower was given records that do not continue its log."""


class CorruptLog(LogError):
    """Bytes on disk that are not what was written."""

    code = ErrorCode.CORRUPT_MESSAGE


class RottenBatch(CorruptLog):
    """There is no batch where the one before it says that the next begins."""

    def __init__(self, path: str, position: int, reason: str, since: int | None = None) -> None:
        """`since`: where the batch before it starts, whose length may be what is wrong."""
        super().__init__(f"{path}: {reason} at byte {position}")
        self.since = position if since is None else since


class Stoppable(Protocol):
    def stopped(self, error: OSError) -> StorageFailed: ...


_Stoppable = TypeVar("_Stoppable", bound=Stoppable)
_Arguments = ParamSpec("_Arguments")


def stops_at_errors(
    method: Callable[Concatenate[_Stoppable, _Arguments], None],
) -> Callable[Concatenate[_Stoppable, _Arguments], None]:
    """For what changes several files of a log: an error half way stops it, and opening it again puts it in order."""

    @functools.wraps(method)
    def stopping(log: _Stoppable, /, *arguments: _Arguments.args, **options: _Arguments.kwargs) -> None:
        try:
            method(log, *arguments, **options)
        except OSError as error:
            raise log.stopped(error) from error

    return stopping
