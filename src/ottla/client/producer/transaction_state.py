"""The states of a producer's transactions, and what may follow what. No I/O: the manager asks and tells.

A transaction that has been told to end stays in COMMITTING or ABORTING until the coordinator's answer is known, for as
long as that takes. Nothing begins before: under the same epoch, the records of two transactions would be one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from ottla.client.errors import ClientError


class Phase(enum.Enum):
    READY = "no transaction"
    OPEN = "records may be sent"
    FAILED = "something of it was not written: it can only be aborted"
    CLOSING = "no more records come; what was sent is being written"
    COMMITTING = "the coordinator is asked to commit, until it has answered"
    ABORTING = "the coordinator is asked to abort, until it has answered"
    FENCED = "the transactional id is another's: the end"


class TransactionEvent(enum.Enum):
    BEGIN = enum.auto()
    FAIL = enum.auto()
    CLOSE = enum.auto()
    COMMIT = enum.auto()
    REFUSED = enum.auto()
    """The coordinator will not commit it."""
    ABORT = enum.auto()
    ENDED = enum.auto()
    FENCE = enum.auto()


TRANSITIONS: dict[tuple[Phase, TransactionEvent], Phase] = {
    (Phase.READY, TransactionEvent.BEGIN): Phase.OPEN,
    (Phase.OPEN, TransactionEvent.FAIL): Phase.FAILED,
    (Phase.OPEN, TransactionEvent.CLOSE): Phase.CLOSING,
    (Phase.OPEN, TransactionEvent.ABORT): Phase.ABORTING,
    (Phase.FAILED, TransactionEvent.FAIL): Phase.FAILED,
    (Phase.FAILED, TransactionEvent.CLOSE): Phase.FAILED,
    (Phase.FAILED, TransactionEvent.ABORT): Phase.ABORTING,
    (Phase.CLOSING, TransactionEvent.FAIL): Phase.FAILED,
    (Phase.CLOSING, TransactionEvent.COMMIT): Phase.COMMITTING,
    (Phase.CLOSING, TransactionEvent.ABORT): Phase.ABORTING,
    (Phase.COMMITTING, TransactionEvent.ENDED): Phase.READY,
    (Phase.COMMITTING, TransactionEvent.REFUSED): Phase.FAILED,
    (Phase.ABORTING, TransactionEvent.FAIL): Phase.ABORTING,
    (Phase.ABORTING, TransactionEvent.ENDED): Phase.READY,
    (Phase.FENCED, TransactionEvent.FAIL): Phase.FENCED,
} | {(phase, TransactionEvent.FENCE): Phase.FENCED for phase in Phase}

_ONE_AT_A_TIME = "there is a transaction already: a producer has one at a time"
_IN_PROGRESS = (Phase.OPEN, Phase.FAILED, Phase.CLOSING)


class TransactionState:
    """`error` is the first thing that went wrong in the present transaction; `fence` what ended them all."""

    def __init__(self) -> None:
        self.phase = Phase.READY
        self.error: ClientError | None = None
        self.fence: ClientError | None = None
        self.partitions: set[tuple[str, int]] = set()
        """That are in the transaction."""
        self.joining: set[tuple[str, int]] = set()
        """That the coordinator is still to be told of, in version 1."""
        self.groups: set[str] = set()
        self.why_unusable = "the producer is not open: use it inside `with`, or call open()"
        """Nobody would send what is put into a transaction before that, or after the producer is closed."""

    @property
    def is_empty(self) -> bool:
        """Whether the coordinator has never heard of it."""
        return not self.partitions and not self.joining and not self.groups

    @property
    def is_in_progress(self) -> bool:
        """Whether it has begun, and nobody is asked to end it."""
        return self.phase in _IN_PROGRESS

    def check_usable(self) -> None:
        if self.why_unusable:
            raise RuntimeError(self.why_unusable)

    def step(self, event: TransactionEvent) -> None:
        """RuntimeError for what cannot be at the moment; the fence, for whoever is fenced."""
        following = TRANSITIONS.get((self.phase, event))
        if following is None:
            if self.fence is not None:
                raise self.fence.again()
            in_progress = event is TransactionEvent.BEGIN and self.is_in_progress
            raise RuntimeError(_ONE_AT_A_TIME if in_progress else f"{event.name} cannot be: {self.phase.value}")
        if event is TransactionEvent.BEGIN:
            self.error = None
            self.partitions.clear()
            self.joining.clear()
            self.groups.clear()
        self.phase = following

    def fail(self, error: ClientError) -> None:
        """A part of it was not written. Outside of a transaction there is nothing to fail."""
        if (self.phase, TransactionEvent.FAIL) in TRANSITIONS:
            self.error = self.error or error
            self.step(TransactionEvent.FAIL)

    def end_for_good(self, error: ClientError) -> None:
        self.fence = self.fence or error
        self.step(TransactionEvent.FENCE)

    def take_joining(self) -> set[tuple[str, int]]:
        """Those that the coordinator is told of next."""
        return set(self.joining)

    def joined(self, partitions: Iterable[tuple[str, int]]) -> None:
        self.partitions.update(partitions)
        self.joining.difference_update(partitions)
