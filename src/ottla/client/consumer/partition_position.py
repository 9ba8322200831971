"""How far a consumer has come in one partition. A machine without I/O: what happened comes in, the state says the rest.

    committed <= finished <= position <= fetch_offset

`position` is the next record to hand out, `finished` the first one that may still be in the user's hands: all before it
is done with, and only that is ever committed. Both are moved by whoever hands out records, which may be another thread
than the event loop's; all else belongs to the event loop. What is in hand is settled when the user asks for more.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto

from ottla.client.consumer.fetched_data import FetchedData
from ottla.client.consumer.leader_epochs import UNKNOWN, LeaderEpochs
from ottla.client.errors import ClientError, LogTruncated
from ottla.client.group.offsets import Offset, TopicPartition

NOWHERE = -1


class Status(Enum):
    """Whether it is known where to go on, and if not, how that is found."""

    UNLOCATED = auto()
    """Where the group has committed, else at the consumer's start."""
    REWINDING = auto()
    """Where the group has committed, else where it began."""
    OUT_OF_RANGE = auto()
    """Where it was is not there any more: by the rule for that."""
    READY = auto()


class PositionEvent(Enum):
    LOCATED = auto()
    SOUGHT = auto()
    REWOUND = auto()
    NOT_THERE = auto()


_AFTER = {
    (Status.UNLOCATED, PositionEvent.LOCATED): Status.READY,
    (Status.UNLOCATED, PositionEvent.SOUGHT): Status.READY,
    (Status.UNLOCATED, PositionEvent.REWOUND): Status.UNLOCATED,
    (Status.REWINDING, PositionEvent.LOCATED): Status.READY,
    (Status.REWINDING, PositionEvent.SOUGHT): Status.READY,
    (Status.REWINDING, PositionEvent.REWOUND): Status.REWINDING,
    (Status.OUT_OF_RANGE, PositionEvent.LOCATED): Status.READY,
    (Status.OUT_OF_RANGE, PositionEvent.SOUGHT): Status.READY,
    (Status.OUT_OF_RANGE, PositionEvent.REWOUND): Status.REWINDING,
    (Status.READY, PositionEvent.SOUGHT): Status.READY,
    (Status.READY, PositionEvent.REWOUND): Status.REWINDING,
    (Status.READY, PositionEvent.NOT_THERE): Status.OUT_OF_RANGE,
}


class PartitionPosition:
    __slots__ = (
        "_asked_epoch", "_in_hand", "ahead", "began", "committed", "epoch", "fetch_offset", "fetched", "finished",
        "high_watermark", "is_paused", "leader_epochs", "offered", "out_turn", "pause_seconds", "position",
        "resting_until", "status", "topic_id", "topic_partition", "trouble", "trouble_since", "turn",
    )  # fmt: skip

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.topic_id: bytes | None = None
        """Of the topic that its offsets are of, once it was asked for records."""
        self.status = Status.UNLOCATED
        self.epoch = 0
        """Grows when it goes on from elsewhere: what was asked for before is stale then."""
        self.position = self.finished = self.committed = self.began = NOWHERE
        self.ahead = NOWHERE
        """Up to where was committed before it was handed out."""
        self.offered = NOWHERE
        """Where it was when the rest of that was handed out last, for the partition was about to be lost."""
        self.fetch_offset = NOWHERE
        self.high_watermark = NOWHERE
        self.fetched: deque[FetchedData] = deque()
        self.leader_epochs = LeaderEpochs()
        self._in_hand: Entry | None = None
        self._asked_epoch = NOWHERE
        self.is_paused = False
        self.turn = self.out_turn = 0
        """When something of it was fetched, and handed out, last: others may come first then."""
        self.resting_until = 0.0
        self.pause_seconds = 0.0
        self.trouble: ClientError | None = None
        self.trouble_since = 0.0

    def __repr__(self) -> str:
        return f"<{self.topic_partition} {self.status.name} {self.finished}/{self.position}/{self.fetch_offset}>"

    @property
    def is_ready(self) -> bool:
        return self.status is Status.READY

    @property
    def held_bytes(self) -> int:
        """What was fetched and is not handed out yet, or not settled."""
        in_hand = self._in_hand
        held = sum(data.size_bytes for data in list(self.fetched))
        return held if in_hand is None else held + in_hand.data.size_bytes

    @property
    def to_commit(self) -> int | None:
        """What is finished and not committed yet. What was committed ahead and never handed out is given back by it."""
        is_committed = self.finished == self.committed and self.ahead <= self.finished
        return None if self.finished == NOWHERE or is_committed else self.finished

    @property
    def out_to(self) -> int:
        """Up to where records are handed out; at most once, up to where that was committed before, or is about to be:
        a commit of less would bring the rest twice."""
        return max(self.position, self.ahead)

    @property
    def is_owed(self) -> bool:
        """Whether what comes next is committed already: nobody else is given it, whoever has the partition by then."""
        return self.position < self.ahead <= self.committed

    def to_be_committed(self, offset: int) -> Offset:
        """With the epoch of the record before, so that whoever goes on from there can see whether it is still there."""
        return Offset(offset, leader_epoch=self.leader_epochs.before(offset))

    # Where to go on.

    def locate(self, epoch: int, offset: int, committed: int = NOWHERE, leader_epoch: int = UNKNOWN) -> None:
        """The answer to the question where to begin, if it was asked in this epoch."""
        if epoch != self.epoch or self.is_ready:
            return
        if self.began == NOWHERE:
            self.began = offset
        self._go(PositionEvent.LOCATED, offset)
        self.leader_epochs.begin(leader_epoch)
        self.committed = committed

    def seek(self, offset: int) -> None:
        self._go(PositionEvent.SOUGHT, offset)

    def go_back(self, truncated: LogTruncated) -> None:
        """To where the log is still what it was."""
        self._go(PositionEvent.SOUGHT, truncated.offset)
        self.leader_epochs.begin(truncated.epoch)

    def rewind(self) -> None:
        """Back to what is committed: nothing is in hand any more."""
        self._go(PositionEvent.REWOUND, NOWHERE)

    def lose_offset(self) -> None:
        """The broker has not what comes next."""
        self.topic_id = None
        self._go(PositionEvent.NOT_THERE, NOWHERE)

    def _go(self, event: PositionEvent, offset: int) -> None:
        self.status = _AFTER[self.status, event]
        self._restart(offset)
        self.leader_epochs.begin()
        self.finished = self.position = offset
        self.ahead = self.offered = NOWHERE

    def _restart(self, offset: int) -> None:
        self.epoch += 1
        self.fetched.clear()
        self._in_hand = None
        self.fetch_offset = offset
        self.leader_epochs.cut(offset)

    # What is fetched.

    @property
    def is_asked(self) -> bool:
        return self._asked_epoch == self.epoch

    def ask(self) -> int:
        """A leader is asked for more; the epoch to come back with."""
        self._asked_epoch = self.epoch
        return self.epoch

    def stop_asking(self, epoch: int) -> None:
        if self._asked_epoch == epoch:
            self._asked_epoch = NOWHERE

    def take(self, epoch: int, data: FetchedData) -> bool:
        """What a leader has sent; whether there is something in it."""
        if epoch != self.epoch or data.fetch_offset != self.fetch_offset:
            return False
        self.high_watermark = data.high_watermark
        if not data.size_bytes:
            return False
        self.fetched.append(data)
        self.fetch_offset = data.next_offset
        self.leader_epochs.forget_before(self.finished)
        self.leader_epochs.took(data.epochs)
        if self.is_paused:
            data.leave_answer()
        return True

    # What is handed out.

    def pause(self) -> None:
        """From any thread. What is held stays, perhaps for long."""
        self.is_paused = True
        for data in list(self.fetched):
            data.leave_answer()

    def peek(self) -> Entry | None:
        """What would be handed out next."""
        if self.is_paused or not self.is_ready or not self.fetched:
            return None
        return Entry(self, self.fetched[0])

    def is_next(self, entry: Entry) -> bool:
        """Whether it still may be handed out."""
        is_first = bool(self.fetched) and self.fetched[0] is entry.data
        return is_first and self.position == entry.start and not self.is_paused

    def hand_out(self, entry: Entry) -> None:
        assert self._in_hand is None
        assert self.fetched[0] is entry.data
        self.fetched.popleft()
        self._in_hand = entry

    def settle(self) -> None:
        """The user asks for more: what it has is finished, and what it did not get comes next."""
        entry, self._in_hand = self._in_hand, None
        if entry is None:
            return
        self.finished = self.position
        if entry.is_damaged:
            self._restart(self.position)  # it may come whole the next time
        elif self.position < entry.data.next_offset:
            self.fetched.appendleft(entry.data)
            if self.is_paused:
                entry.data.leave_answer()

    def hand_back(self) -> None:
        """What is in hand was not processed: it comes again. From the thread that hands out."""
        self.position = self.finished


class Entry:
    """What is handed out of one partition in one go: the records of `data` from `start` on, or up to `end`."""

    __slots__ = ("data", "end", "is_damaged", "place", "start")

    def __init__(self, place: PartitionPosition, data: FetchedData) -> None:
        self.place = place
        self.data = data
        self.start = place.position
        self.end: int | None = None
        self.is_damaged = False
