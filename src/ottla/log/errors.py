"""What the log refuses, each with the number the protocol has for it."""

from __future__ import annotations


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


class StaleLeaderEpoch(LogError):
    """Records of a leader that has been replaced: the log never goes back to an earlier epoch."""

    code = 74


class UnexpectedOffset(LogError):
    """A follower was given records that do not continue its log."""


class CorruptLog(LogError):
    """Bytes on disk that are not what was written."""

    code = 2
