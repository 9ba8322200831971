"""Records of one topic as their producer's callers gave them: columns, in their order, and where they went."""

from __future__ import annotations

import asyncio
import logging
import threading
from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

from ottla.client.errors import ClientError
from ottla.client.producer.delivery import NO_OFFSET, Delivery
from ottla.records.batch import Buffer, check_batch
from ottla.records.codec import Column, Rows, weigh
from ottla.records.read import Batch as ReadBatch

if TYPE_CHECKING:
    from ottla.client.producer.batch import Batch

T = TypeVar("T")
Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
Indexes: TypeAlias = range | list[int]
"""Numbers of records in a chunk, ascending."""
OnDelivery: TypeAlias = Callable[[Delivery], Any]
Whole: TypeAlias = tuple[bytes | None, bytes | None, Headers, int | None, int | None, OnDelivery | None]
"""A record that has more than a value: value, key, headers, partition, timestamp, and whom to call."""
NO_PARTITION = -1
_logger = logging.getLogger("ottla.client")
RECORD_OVERHEAD_BYTES = 24  # lengths, deltas and attributes, at most that many for records of usual sizes


def pick(column: list[T], indexes: Indexes) -> list[T]:
    if isinstance(indexes, range):
        return column[indexes.start : indexes.stop : indexes.step]
    if len(indexes) == 1:
        return [column[indexes[0]]]
    return list(itemgetter(*indexes)(column))


def pick_bytes(column: Column, indexes: Indexes) -> Column:
    """Rows stay where they lie, if they follow each other."""
    if isinstance(column, Rows) and isinstance(indexes, range):
        rows: Rows = column[indexes.start : indexes.stop : indexes.step]
        return rows
    return pick(cast("list[bytes | None]", column), indexes)


class Piece:
    """The records of a chunk that are in one batch, from a position on."""

    __slots__ = ("batch", "chunk", "indexes", "start")

    def __init__(self, chunk: Chunk, indexes: Indexes, batch: Batch, start: int) -> None:
        self.chunk = chunk
        self.indexes = indexes
        self.batch = batch
        self.start = start

    def position(self, index: int) -> int | None:
        """Of a record in its batch."""
        indexes = self.indexes
        if isinstance(indexes, range):
            return self.start + indexes.index(index) if index in indexes else None
        found = bisect_left(indexes, index)
        return self.start + found if found < len(indexes) and indexes[found] == index else None


class Copied(NamedTuple):
    """A whole batch that is sent on as it is."""

    partition: int
    batch: Buffer


class Chunk:
    """Filled with records, or made of columns. When it is closed, it belongs to the sender.

    One thread fills it without a lock, and looks at `is_closed` after each record. If the chunk was closed, the thread
    takes the lock and finds out whether the record was still taken. Of a record that is only a value, only the value is
    kept: an object for each record would cost more than everything else, because the garbage collector looks at it
    again and again. A column that no record has is None. Where `timestamps` is None, `timestamp_ms` is that of all.
    """

    __slots__ = (
        "callbacks", "copied", "count", "ends", "error", "errors", "filled_bytes", "has_more", "headers", "is_closed",
        "is_counted", "is_observed", "is_whole", "keys", "limit_bytes", "lock", "observed", "opened_at", "owner",
        "partitions", "pieces", "records", "sender_thread", "size_bytes", "stamps_each", "timestamp_ms", "timestamps",
        "topic", "undecided", "values", "waiters", "when_done",
    )  # fmt: skip

    def __init__(self, topic: str, lock: threading.Lock, opened_at: float) -> None:
        self.topic = topic
        self.lock = lock
        self.opened_at = opened_at
        self.owner = 0
        """The thread that fills it."""
        self.sender_thread = 0
        """The thread that handles answers: to wait for an answer on it would be to wait for ever."""
        self.records: list[bytes | Whole | None] = []
        self.has_more = False
        """Whether a record has more than a value."""
        self.is_closed = self.is_counted = False
        self.limit_bytes = 0
        self.stamps_each = False
        """Whether a record without a timestamp gets the time of its own call, in place of the chunk's."""
        self.copied: Copied | None = None
        """A whole batch in place of columns. `values` only tells how many records it has."""
        self.values: Column = []
        self.keys: Column | None = None
        self.headers: list[Headers] | None = None
        self.partitions: list[int | None] | None = None
        self.timestamps: list[int] | None = None
        self.timestamp_ms = 0
        self.size_bytes = 0
        """About how large it is, once it is closed: what it takes of the buffer."""
        self.filled_bytes = 0
        """Counted before each record, so that no record of a closed chunk is left out."""
        self.ends: array[int] | None = None
        """About how large the records up to each one are together; None until that is known."""
        self.count = 0
        self.undecided = 0
        self.pieces: list[Piece] = []
        self.error: ClientError | None = None
        """Why none of it was sent."""
        self.errors: dict[int, ClientError] = {}
        """Of records that were not sent although others were."""
        self.is_whole = False
        """Whether it was given as one: all of it is sent, or nothing."""
        self.is_observed = False
        """Whether somebody is told what becomes of all of it."""
        self.observed: set[int] = set()
        """Records whose outcome somebody has asked for, or is told."""
        self.callbacks: dict[int, OnDelivery] | None = None
        self.waiters: list[tuple[int, Callable[[], object]]] = []
        self.when_done: list[Callable[[], object]] = []

    def close(self) -> None:
        """No more records come. Under the lock. A Ctrl-C may interrupt it: it is done when the records are counted."""
        self.is_closed = True
        self.size_bytes = self.filled_bytes
        self.count = self.undecided = len(self.records) or len(self.values)
        self.is_counted = True

    def unpack(self) -> None:
        """Make columns of the records, once. The list of records stays: the thread that filled it may look again."""
        if self.values:
            return
        records = self.records[: self.count]
        if not self.has_more or not records:  # closed before its first record came
            self.values = cast("list[bytes | None]", records)
            return
        whole = [record if type(record) is tuple else (record, None, (), None, None, None) for record in records]
        values, keys, headers, partitions, timestamps, callbacks = zip(*whole, strict=True)
        self.values = list(values)
        if keys.count(None) != self.count:
            self.keys = list(keys)
        if any(headers):
            self.headers = list(headers)
        if partitions.count(None) != self.count:
            self.partitions = list(partitions)
        if timestamps.count(None) != self.count:
            self.timestamps = [self.timestamp_ms if time is None else time for time in timestamps]
        if callbacks.count(None) != self.count:
            self.callbacks = {index: one for index, one in enumerate(callbacks) if one is not None}
            self.observed.update(self.callbacks)

    def decode(self) -> None:
        """Columns in place of a whole batch: it has to be cut. CorruptBatch where it is damaged: what is made of its
        records would have a checksum that is right."""
        assert self.copied is not None
        batch = self.copied.batch
        records = ReadBatch(check_batch(batch), memoryview(batch)).records()
        self.values = [record.value for record in records]
        self.keys = [record.key for record in records]
        self.headers = [record.headers for record in records]
        self.timestamps = [record.timestamp for record in records]
        self.copied = None

    def weigh(self) -> array[int]:
        if self.ends is None:
            headers = None if self.headers is None else list(map(headers_bytes, self.headers))
            self.ends = weigh(self.values, self.keys, headers, RECORD_OVERHEAD_BYTES)
        return self.ends

    # What became of it. Decided by the sender, asked for by any thread.

    def settle(self, indexes: Indexes) -> None:
        """These records are decided: whoever waits for them is told."""
        fires: list[Callable[[], object]] = []
        with self.lock:
            self.undecided -= len(indexes)
            if self.waiters or self.callbacks:
                settled = indexes if isinstance(indexes, range) else set(indexes)
                waiters, self.waiters = self.waiters, []
                for index, fire in waiters:
                    if index in settled:
                        fires.append(fire)
                    else:
                        self.waiters.append((index, fire))
                called = [index for index in self.callbacks or () if index in settled]
                fires += [partial(self._call_back, index) for index in called]
            if not self.undecided:
                fires += self.when_done
                self._let_go()
        for fire in fires:
            try:
                fire()
            except Exception:  # a callback's mistake, or a waiter whose event loop is closed
                _logger.exception("a callback on the delivery of a record to topic %s failed", self.topic)
            except BaseException as error:
                # It is to end the loop, but not in the middle of an answer: the others are told first.
                asyncio.get_running_loop().call_soon(_raise, error)

    def _call_back(self, index: int) -> None:
        assert self.callbacks is not None
        self.callbacks.pop(index)(self.delivery(index))

    def _let_go(self) -> None:
        """Free the records: those who keep the chunk only want to know what became of it."""
        self.values = []
        self.keys = self.headers = self.partitions = self.ends = self.copied = None
        # As many as before: a thread that comes late must see that it is too late.
        self.records[:] = [None] * len(self.records)

    def fail(self, error: ClientError) -> None:
        """None of it was sent."""
        self.unpack()
        self.error = error
        self.settle(range(self.count))

    def fail_some(self, errors: Mapping[int, ClientError]) -> None:
        """These are not sent, and the others are."""
        self.errors.update(errors)
        self.settle(list(errors))

    def count_unobserved(self, indexes: Indexes) -> int:
        if self.is_observed:
            return 0
        if not self.observed:
            return len(indexes)
        return sum(index not in self.observed for index in indexes)

    def let_go_of(self, piece: Piece) -> None:
        """Its records go to other batches. The list is replaced, not changed: another thread may be reading it."""
        self.pieces = [one for one in self.pieces if one is not piece]

    def find(self, index: int) -> tuple[Batch, int] | None:
        for piece in self.pieces:
            position = piece.position(index)
            if position is not None:
                return piece.batch, position
        return None

    @property
    def is_settled(self) -> bool:
        """Whether all of it is decided, for good. Needs no lock: in a child of the process nobody may be left to
        release it."""
        return self.is_closed and not self.undecided

    def is_decided(self, index: int) -> bool:
        if self.error is not None or index in self.errors:
            return True
        found = self.find(index)
        return found is not None and found[0].outcome is not None

    def delivery(self, index: int) -> Delivery:
        """Of a record that is decided."""
        timestamp_ms = self.timestamp_ms if self.timestamps is None else self.timestamps[index]
        self.observed.add(index)
        found = self.find(index)
        if found is None or found[0].outcome is None:
            error = self.errors.get(index, self.error)
            return Delivery(self.topic, NO_PARTITION, NO_OFFSET, timestamp_ms, error)
        batch, position = found
        return batch.delivery(position, timestamp_ms)

    def deliveries(self) -> list[Delivery]:
        """Of all records, decided all of them, in their order."""
        if self.error is not None:
            return [self.delivery(index) for index in range(self.count)]
        done: list[Delivery | None] = [None] * self.count
        for piece in self.pieces:
            batch, start = piece.batch, piece.start
            for number, index in enumerate(piece.indexes):
                timestamp_ms = self.timestamp_ms if self.timestamps is None else self.timestamps[index]
                done[index] = batch.delivery(start + number, timestamp_ms)
        for index in self.errors:
            done[index] = self.delivery(index)
        return [delivery for delivery in done if delivery is not None]

    @property
    def has_failures(self) -> bool:
        return (
            self.error is not None
            or bool(self.errors)
            or any(piece.batch.outcome is not None and piece.batch.outcome.error is not None for piece in self.pieces)
        )

    def call_when_decided(self, index: int, fire: Callable[[], object]) -> bool:
        """False, and no call will come, if it is decided already."""
        if self.is_settled:
            return False
        with self.lock:
            if self.is_decided(index):
                return False
            self.waiters.append((index, fire))
            self.observed.add(index)
            return True

    def take_back_call(self, index: int, fire: Callable[[], object]) -> None:
        """Whoever waited has stopped waiting, and was not told."""
        with self.lock:
            if (index, fire) in self.waiters:
                self.waiters.remove((index, fire))
                self.observed.discard(index)

    def call_when_done(self, fire: Callable[[], object]) -> bool:
        """For all of its records. False, and no call will come, if they are decided already."""
        with self.lock:
            if self.is_closed and not self.undecided:
                return False
            self.when_done.append(fire)
            return True


def _raise(error: BaseException) -> None:
    raise error


def headers_bytes(headers: Headers) -> int:
    return sum(len(name) + len(value or b"") + 4 for name, value in headers)
