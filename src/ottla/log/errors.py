"""What the log refuses, each with the number the protocol has for it."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE})
PASSING = FULL | OUT_OF_FILES
"""Errors of the system that may be over soon: a full disk, too many open files."""


def is_lasting(error: OSError) -> bool:
    """Whether the disk is at fault, and not only for a moment."""
    return error.errno is not None and error.errno not in PASSING


class LogError(Exception):
    """An operation was refused and changed nothing. `code` is Kafka's error number for it."""

    code = -1


class OffsetOutOfRange(LogError):
    code = 1


class OutOfOrderSequence(LogError):
    code = 45


class InvalidProducerEpoch(LogError):
    code = 47


class InvalidTransactionState(LogError):
    code = 48


class CoordinatorFenced(LogError):
    code = 52


class StorageFailed(LogError):
    """The disk failed, or failed before: the log takes no more writes until it is opened again."""

    code = 56


class LogDeleted(StorageFailed):
    """The topic was deleted while somebody had to do with its log."""

    code = 3


class StaleLeaderEpoch(LogError):
    """Records of a leader that has been replaced: the log never goes back to an earlier epoch."""

    code = 74


class UnexpectedOffset(LogError):
    """A follower was given records that do not continue its log."""


class CorruptLog(LogError):
    """Bytes on disk that are not what was written."""

    code = 2


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
