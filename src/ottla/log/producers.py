"""What one partition knows of the producers that write to it: sequences, epochs, open transactions.

It answers two questions. May this batch be appended, or was it appended before (idempotence)? And up to where
is every transaction decided (the first unstable offset)? The state follows from the log alone, so it is
rebuilt from any snapshot and the batches behind it.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.log.errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    StorageFailed,
)
from ottla.records.batch import NO_SEQUENCE, TRANSACTIONAL, BatchHeader, add_to_sequence
from ottla.records.build import ControlMarker

KEPT_BATCHES = 5
FIRST_VERSION_WITH_RISING_EPOCH = 2
NO_OFFSET = -1
MOST_PRODUCERS = 5000
"""That a partition remembers: all of them are written down, at once, whenever a segment is full."""
FORGOTTEN_AT_ONCE = 500
SILENT_MS = 3_600_000
"""For so long a producer writes nothing before it is forgotten because its last records are old."""


def stable_offset(high_watermark: int, unstable_offset: int | None, log_start_offset: int) -> int:
    """The last stable offset: up to where every transaction is decided and replicated."""
    if unstable_offset is None:
        return high_watermark
    return max(log_start_offset, min(unstable_offset, high_watermark))  # records may have been deleted


class Origin(enum.Enum):
    """Who wrote a batch, which decides what is checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"  # only the epoch is checked
    REPLICATION = "replication"  # the leader checked already


class AppendedBatch(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return self.last_sequence - self.offset_delta & 0x7FFFFFFF

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    aborted: bool


class Asked(NamedTuple):
    """A producer whose coordinator was asked whether this partition takes part in its transaction."""

    epoch: int
    lowest_sequence: int  # of the batches that had to wait for the answer, or were refused by it
    timestamp: int
    epoch_rises: bool  # with each transaction: a marker of this epoch ends the one before


class Unwritten(NamedTuple):
    """A batch that there was no room for on the disk."""

    epoch: int
    base_sequence: int
    followers: tuple[int, ...] = ()  # sequences that came since


class Noticed(NamedTuple):
    """When housekeeping first saw a producer as it is."""

    epoch: int
    last_offset: int
    last_timestamp: int
    steady_ms: int


class Producer:
    """One producer id on one partition."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "transaction_start")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[AppendedBatch] = deque(maxlen=KEPT_BATCHES)
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_start: int | None = None

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


class Producers:
    """The producers of a partition, by id."""

    def __init__(self) -> None:
        self.by_id: dict[int, Producer] = {}
        self.ongoing: OrderedDict[int, int] = OrderedDict()  # first offset -> producer id
        self.unreplicated: list[CompletedTransaction] = []  # their markers are not below the high watermark
        self._asked: dict[int, Asked] = {}  # by producer id, until it takes part
        self._unwritten: dict[int, Unwritten] = {}  # by producer id, until it comes again
        self._unwritten_before: dict[int, Unwritten] = {}  # when housekeeping last looked
        self._noticed: dict[int, Noticed] = {}
        self._most = MOST_PRODUCERS

    # Does it take part in the transaction of its producer?

    def takes_part(self, producer_id: int, epoch: int) -> bool:
        """Whether records of the producer's transaction are here, so that nobody needs to be asked."""
        producer = self.by_id.get(producer_id)
        return producer is not None and producer.epoch == epoch and producer.transaction_start is not None

    def is_admitted(self, producer_id: int, epoch: int) -> bool:
        """Whether it takes part, or its coordinator was asked, and no marker has ended the transaction since."""
        asked = self._asked.get(producer_id)
        return self.takes_part(producer_id, epoch) or (asked is not None and asked.epoch == epoch)

    def is_replaced(self, producer_id: int, epoch: int) -> bool:
        """Whether a higher epoch was seen here."""
        producer = self.by_id.get(producer_id)
        return producer is not None and epoch < producer.epoch

    def note_asked(self, header: BatchHeader, now_ms: int, *, epoch_rises: bool = False) -> Callable[[], None]:
        """The coordinator is asked about a batch. If it refuses, those behind it must not be taken in its place.

        `epoch_rises`: with the end of each of its transactions, as version 2 has it.
        The call that is returned takes this back: for a producer that the coordinator does not know, or has replaced.
        """
        producer_id = header.producer_id
        before = asked = self._asked.get(producer_id)
        lowest_sequence = header.base_sequence
        if asked is not None and asked.epoch > header.producer_epoch:
            return lambda: None  # one that was replaced asks, and what its successor has to keep to stays
        if asked is not None and asked.epoch == header.producer_epoch:
            lowest_sequence = min(lowest_sequence, asked.lowest_sequence)
        noted = self._asked[producer_id] = Asked(header.producer_epoch, lowest_sequence, now_ms, epoch_rises)

        def take_back() -> None:
            if self._asked.get(producer_id) is noted:
                del self._asked[producer_id]
                if before is not None:
                    self._asked[producer_id] = before

        return take_back

    # May it be appended?

    def find_duplicate(self, header: BatchHeader) -> AppendedBatch | None:
        """The batch that this one repeats, if it is among the last few of its producer."""
        producer = self.by_id.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        for batch in producer.batches:
            if batch.last_sequence == header.last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None

    def check(self, header: BatchHeader, origin: Origin, *, new_epoch_starts_at_zero: bool = False) -> None:
        """Raise unless the batch continues what its producer wrote.

        `new_epoch_starts_at_zero`: also where nothing is known of the producer, as transactions version 2 asks.
        """
        if origin is Origin.REPLICATION:
            return
        if self._asked:
            self._check_asked(header)
        if self._unwritten:
            self._check_unwritten(header)
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            if new_epoch_starts_at_zero and header.base_sequence != 0 and origin is Origin.CLIENT:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} must start epoch {header.producer_epoch} with sequence 0, "
                    f"not {header.base_sequence}"
                )
            return
        if header.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} has epoch {header.producer_epoch}, the last seen is {producer.epoch}"
            )
        if origin is Origin.CLIENT:
            self._check_sequence(producer, header)
        if producer.transaction_start is not None and not header.attributes & TRANSACTIONAL:
            raise InvalidTransactionState(
                f"producer {header.producer_id} has an open transaction and sent a batch outside of it"
            )

    def _check_asked(self, header: BatchHeader) -> None:
        asked = self._asked.get(header.producer_id)
        if asked is not None and asked.epoch == header.producer_epoch and header.base_sequence > asked.lowest_sequence:
            raise OutOfOrderSequence(
                f"producer {header.producer_id}, epoch {header.producer_epoch}: sequence {header.base_sequence} "
                f"came where {asked.lowest_sequence} was not taken yet"
            )

    def note_unwritten(self, header: BatchHeader) -> None:
        """A batch that may be appended could not be: its producer will send it again."""
        self._unwritten[header.producer_id] = Unwritten(header.producer_epoch, header.base_sequence)
        if len(self._unwritten) > MOST_PRODUCERS:  # anybody can make up numbers, and the disk may be full for long
            del self._unwritten[next(iter(self._unwritten))]

    def _check_unwritten(self, header: BatchHeader) -> None:
        """What was in flight behind such a batch is refused for the same reason, and comes again in its order.

        To a producer, out of order means that something is lost; and of one that is new here, any sequence is taken.
        Where one of those comes again without the batch itself, the producer has given that up.
        """
        known = self._unwritten.get(header.producer_id)
        if known is None or known.base_sequence == header.base_sequence:
            return
        followers = known.followers
        is_again = header.base_sequence in followers or len(followers) == KEPT_BATCHES
        if is_again or known.epoch != header.producer_epoch:
            del self._unwritten[header.producer_id]
            return
        self._unwritten[header.producer_id] = known._replace(followers=(*followers, header.base_sequence))
        raise StorageFailed(
            f"producer {header.producer_id}: sequence {header.base_sequence} came behind {known.base_sequence}, "
            "which could not be written"
        )

    def _check_sequence(self, producer: Producer, header: BatchHeader) -> None:
        # One known by a marker alone has an epoch and no sequence yet.
        starts = header.producer_epoch != producer.epoch or not producer.batches
        expected = 0 if starts else add_to_sequence(producer.last_sequence, 1)
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id}, epoch {header.producer_epoch}: sequence {header.base_sequence} "
                f"came where {expected} was due"
            )

    def check_marker(
        self, producer_id: int, epoch: int, marker: ControlMarker, *, transaction_version: int = 0
    ) -> None:
        """Raise if a marker comes from a coordinator or for a producer that has been replaced.

        From `transaction_version` 2 on the epoch of a marker is above that of its records (KIP-1228). One of the
        same epoch is from before the open transaction; or it comes again, if none is open.
        """
        producer = self.by_id.get(producer_id)
        if producer is None:
            return
        is_open = producer.transaction_start is not None
        least_epoch = producer.epoch + (transaction_version >= FIRST_VERSION_WITH_RISING_EPOCH and is_open)
        if epoch < least_epoch:
            raise InvalidProducerEpoch(
                f"a marker for producer {producer_id} has epoch {epoch}, the last seen is {producer.epoch}"
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise CoordinatorFenced(
                f"a marker for producer {producer_id} comes from coordinator epoch {marker.coordinator_epoch}, "
                f"the last seen is {producer.coordinator_epoch}"
            )

    # It was appended

    def appended(self, header: BatchHeader, base_offset: int) -> None:
        """Take note of a data batch that was written at `base_offset`."""
        producer = self._known(header.producer_id, header.producer_epoch)
        delta = header.last_offset_delta
        timestamp = header.max_timestamp
        producer.batches.append(AppendedBatch(header.last_sequence, base_offset + delta, delta, timestamp))
        producer.last_timestamp = timestamp
        if self._asked:
            self._asked.pop(header.producer_id, None)
        if self._unwritten:
            self._unwritten.pop(header.producer_id, None)
        # A batch that compaction emptied belongs to a transaction that was decided long ago.
        if header.attributes & TRANSACTIONAL and producer.transaction_start is None and header.count:
            producer.transaction_start = base_offset
            self.ongoing[base_offset] = header.producer_id

    def marked(self, header: BatchHeader, offset: int, marker: ControlMarker) -> CompletedTransaction | None:
        """Take note of a marker that was written at `offset`: the transaction it ends, if it ends one."""
        producer = self._known(header.producer_id, header.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = header.max_timestamp
        asked = self._asked.get(header.producer_id)
        if asked is not None and not (asked.epoch_rises and header.producer_epoch <= asked.epoch):
            del self._asked[header.producer_id]
        self._unwritten.pop(header.producer_id, None)
        first_offset = producer.transaction_start
        if first_offset is None:
            return None
        producer.transaction_start = None
        self.ongoing.pop(first_offset, None)
        completed = CompletedTransaction(header.producer_id, first_offset, offset, not marker.is_commit)
        self.unreplicated.append(completed)
        return completed

    def _known(self, producer_id: int, epoch: int) -> Producer:
        producer = self.by_id.get(producer_id)
        if producer is None:
            if len(self.by_id) >= self._most:
                self._forget_oldest()
            producer = self.by_id[producer_id] = Producer(epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        return producer

    # Up to where is all decided?

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest open transaction begins."""
        return next(iter(self.ongoing), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that is open, or whose marker is not yet replicated."""
        undecided = self.first_undecided_offset
        if not self.unreplicated:
            return undecided
        unreplicated = min(completed.first_offset for completed in self.unreplicated)
        return unreplicated if undecided is None else min(undecided, unreplicated)

    def stable_offset_after(self, completed: CompletedTransaction) -> int:
        """What the last stable offset will be when this transaction's marker is replicated."""
        undecided = self.first_undecided_offset
        return completed.last_offset + 1 if undecided is None else undecided

    def replicated(self, high_watermark: int) -> None:
        """Markers below the high watermark count."""
        if self.unreplicated:
            self.unreplicated = [done for done in self.unreplicated if done.last_offset >= high_watermark]

    # Life

    def _forget_oldest(self) -> None:
        """Those without an open transaction that wrote longest ago: nobody else remembers what they sent, either."""
        at_rest = [producer_id for producer_id, producer in self.by_id.items() if producer.transaction_start is None]
        at_rest.sort(key=lambda producer_id: self.by_id[producer_id].last_offset)
        for producer_id in at_rest[:FORGOTTEN_AT_ONCE]:
            del self.by_id[producer_id]
        self._most = max(MOST_PRODUCERS, len(self.by_id) + FORGOTTEN_AT_ONCE)

    def expire(self, now_ms: int, steady_ms: int, expiration_ms: int) -> None:
        """Forget producers that have long been silent and have no open transaction.

        Their records may be dated long ago, whenever they were written, and the clock may be set. So none goes before
        it has been silent for a while by `steady_ms`, a clock that nobody sets.
        """
        noticed: dict[int, Noticed] = {}
        for producer_id, producer in list(self.by_id.items()):
            seen = Noticed(producer.epoch, producer.last_offset, producer.last_timestamp, steady_ms)
            before = self._noticed.get(producer_id)
            if before is not None and before[:-1] == seen[:-1]:
                seen = before
            is_old = now_ms - producer.last_timestamp >= expiration_ms
            silence_ms = min(expiration_ms, SILENT_MS) if is_old else expiration_ms
            if producer.transaction_start is None and steady_ms - seen.steady_ms >= silence_ms:
                del self.by_id[producer_id]
            else:
                noticed[producer_id] = seen
        self._noticed = noticed
        self._asked = {
            producer_id: asked for producer_id, asked in self._asked.items() if now_ms - asked.timestamp < expiration_ms
        }
        # Those that were there the last time, too: the batches of others may be on their way again.
        known = self._unwritten_before
        self._unwritten = {
            producer_id: unwritten
            for producer_id, unwritten in self._unwritten.items()
            if known.get(producer_id) is not unwritten
        }
        self._unwritten_before = self._unwritten.copy()

    def restore(self, producers: Iterable[tuple[int, Producer]]) -> None:
        """Put back the producers of a snapshot, of which very many may have open transactions."""
        for producer_id, producer in producers:
            self.by_id[producer_id] = producer
            if producer.transaction_start is not None:
                self.ongoing[producer.transaction_start] = producer_id
        self.ongoing = OrderedDict(sorted(self.ongoing.items()))

    def clear(self) -> None:
        self.by_id.clear()
        self.ongoing.clear()
        self.unreplicated.clear()
        self._asked.clear()
        self._unwritten.clear()
        self._unwritten_before.clear()
        self._noticed.clear()

    def __len__(self) -> int:
        return len(self.by_id)
