"""What a follower does next, by what its leader answers: copy, cut its log, begin anew, wait or give up.

A machine without I/O: it is told of answers and of what became of its effects, and the shell (broker/replication)
fetches and brings the effects about. Which state follows from which event is in TRANSITIONS.

A follower asks for what comes at the end of its log, and tells the epoch of its last record. Where the leader's log
went another way, the answer says which epoch the two have in common and where that ended in the leader's log. The
follower cuts its own there and asks again, until the answer has records (KIP-595).
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from ottla.log.epochs import LeaderEpochs
from ottla.wire.errors import ErrorCode
from ottla.wire.parts import Buffer


class State(enum.Enum):
    FETCHING = "fetching"  # its leader is asked, or may be
    TRUNCATING = "truncating"  # its log is cut, and must be before it goes on
    BACKING_OFF = "backing off"  # until a time
    WAITING = "waiting"  # for the controller to tell who leads
    FAILED = "failed"  # its disk did
    STOPPED = "stopped"


class Event(enum.Enum):
    RECORDS = "records, or none yet"
    DIVERGED = "the leader's log went another way"
    BEFORE_START = "the leader's log starts later"
    LACKS = "records have rotted here"
    TRUNCATED = "the log was cut"
    PASSING_ERROR = "an error that may be over soon"
    OTHER_EPOCH = "the leader knows another epoch"
    DISK_FAILED = "the disk failed"
    RESUME = "the time to wait is over"
    STOP = "it follows no more"


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.FETCHING, Event.RECORDS): State.FETCHING,
    (State.FETCHING, Event.DIVERGED): State.TRUNCATING,
    (State.FETCHING, Event.BEFORE_START): State.TRUNCATING,
    (State.FETCHING, Event.LACKS): State.TRUNCATING,
    (State.FETCHING, Event.PASSING_ERROR): State.BACKING_OFF,
    (State.FETCHING, Event.OTHER_EPOCH): State.WAITING,
    (State.FETCHING, Event.DISK_FAILED): State.FAILED,
    (State.TRUNCATING, Event.TRUNCATED): State.FETCHING,
    (State.TRUNCATING, Event.PASSING_ERROR): State.BACKING_OFF,
    (State.TRUNCATING, Event.DISK_FAILED): State.FAILED,
    (State.BACKING_OFF, Event.RESUME): State.FETCHING,
    (State.WAITING, Event.RESUME): State.FETCHING,
    **{(state, Event.STOP): State.STOPPED for state in State},
}

# The leader has another epoch than this broker, or none yet. The next change of the partition tells; it may be that
# the other is behind, and then the same request is right a little later.
EPOCH_ERRORS: Final = frozenset(
    {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)


class Answer(NamedTuple):
    """What the leader says of one partition."""

    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    records: Buffer | None
    diverging: tuple[int, int] | None = None  # the epoch in common, and where it ended


class Copy(NamedTuple):
    """Append records, and go as far as the leader says."""

    records: Buffer
    high_watermark: int
    log_start_offset: int


class Truncate(NamedTuple):
    offset: int


class RestartAt(NamedTuple):
    """Let go of everything, and go on at an offset."""

    offset: int


class BackOff(NamedTuple):
    error: ErrorCode


Effect = Copy | Truncate | RestartAt | BackOff | None


class Follower:
    """One partition, followed in one epoch of its leader."""

    __slots__ = ("leader_epoch", "state")

    def __init__(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.state = State.FETCHING

    def __repr__(self) -> str:
        return f"<Follower {self.state.value} in epoch {self.leader_epoch}>"

    @property
    def may_fetch(self) -> bool:
        return self.state is State.FETCHING

    def answered(self, asked_offset: int, answer: Answer, end_offset: int, epochs: LeaderEpochs) -> Effect:
        """The leader has answered what was asked for at an offset; the log ends here now, with these epochs."""
        if self.state is not State.FETCHING or asked_offset != end_offset:
            return None  # it comes late, or again: the log went on
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start_offset > end_offset:
            self._become(Event.BEFORE_START)
            return RestartAt(answer.log_start_offset)
        if answer.error is not ErrorCode.NONE:
            self._become(Event.OTHER_EPOCH if answer.error in EPOCH_ERRORS else Event.PASSING_ERROR)
            return BackOff(answer.error)
        if answer.diverging is not None:
            self._become(Event.DIVERGED)
            return Truncate(common_end(*answer.diverging, end_offset, epochs))
        self._become(Event.RECORDS)
        return Copy(b"" if answer.records is None else answer.records, answer.high_watermark, answer.log_start_offset)

    def lacks(self, offset: int) -> Truncate:
        """Records from an offset on have rotted here, and the leader has them."""
        self._become(Event.LACKS)
        return Truncate(offset)

    def truncated(self) -> None:
        self._become(Event.TRUNCATED)

    def failed_for_now(self) -> None:
        """What was to be done could not be, and is tried again later."""
        self._become(Event.PASSING_ERROR)

    def failed(self) -> None:
        self._become(Event.DISK_FAILED)

    def resume(self) -> None:
        if self.state in (State.BACKING_OFF, State.WAITING):
            self._become(Event.RESUME)

    def stop(self) -> None:
        self._become(Event.STOP)

    def _become(self, event: Event) -> None:
        self.state = TRANSITIONS[self.state, event]


def common_end(epoch: int, end_offset: int, own_end_offset: int, epochs: LeaderEpochs) -> int:
    """Where to cut, given the largest epoch that the leader has of those up to the follower's last, and its end there.

    Where the follower has no records of that epoch, its own largest one below may end sooner; then the next answer
    tells whether that is in common.
    """
    own_epoch, own_end = epochs.end_offset_for(epoch, own_end_offset)
    if epoch < 0 or own_epoch < 0:
        return min(end_offset, own_end_offset)
    if own_epoch != epoch:
        return min(own_end, own_end_offset)
    return min(own_end, end_offset, own_end_offset)
