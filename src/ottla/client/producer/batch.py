"""Records of one partition that travel together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.errors import ClientError
from ottla.client.producer.buffer_pool import BufferPool
from ottla.client.producer.chunk import Chunk, Headers, Indexes, Piece, pick, pick_bytes
from ottla.client.producer.delivery import Delivery, Outcome
from ottla.records.batch import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Buffer,
    CorruptBatch,
    check_batch,
)
from ottla.records.build import build_batch, header_for_copy
from ottla.records.codec import Column
from ottla.wire.parts import Joined

if TYPE_CHECKING:
    from ottla.client.producer.partition_queue import PartitionQueue


class Identity(NamedTuple):
    """Under which a producer numbers what it writes, so that a broker knows what it has already."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


ANONYMOUS = Identity()


class Encoding(NamedTuple):
    """How batches become bytes."""

    codec: int
    level: int | None
    is_transactional: bool = False


class Batch:
    """Takes records until it is numbered: from then on it is the same, however often it is sent."""

    __slots__ = (
        "copied", "deadline", "encoded", "headers", "identity", "keys", "may_be_written", "outcome", "pieces", "queue",
        "sequence", "size_bytes", "timestamps", "trouble", "values", "whole_may_be_written",
    )  # fmt: skip

    def __init__(self, queue: PartitionQueue, deadline: float) -> None:
        self.queue = queue
        self.deadline = deadline
        self.copied: Buffer | None = None
        """A whole batch, in place of the columns."""
        self.values: Column = []
        self.keys: Column | None = None
        self.headers: list[Headers] | None = None
        self.timestamps: list[int] | int = 0
        self.size_bytes = 0
        self.pieces: list[Piece] = []
        self.identity = ANONYMOUS
        self.sequence = NO_SEQUENCE
        self.encoded: bytearray | Joined | None = None
        self.trouble: ClientError | None = None
        """Why the last attempt failed."""
        self.may_be_written = False
        """Whether an attempt under its present numbers ended without anybody knowing what became of it."""
        self.whole_may_be_written = False
        """Whether that is so of a larger one that it is a part of."""
        self.outcome: Outcome | None = None

    @property
    def count(self) -> int:
        return sum(len(piece.indexes) for piece in self.pieces)

    @property
    def is_sealed(self) -> bool:
        """Whether it takes no more records."""
        return self.encoded is not None or self.sequence != NO_SEQUENCE or self.copied is not None

    def add(self, chunk: Chunk, indexes: Indexes, size_bytes: int) -> None:
        start = len(self.values)
        values = pick_bytes(chunk.values, indexes)
        timestamps = chunk.timestamp_ms if chunk.timestamps is None else pick(chunk.timestamps, indexes)
        keys = None if chunk.keys is None else pick_bytes(chunk.keys, indexes)
        headers = None if chunk.headers is None else pick(chunk.headers, indexes)
        if not start:
            self.values, self.timestamps, self.keys, self.headers = values, timestamps, keys, headers
        else:
            self._extend(values, timestamps, keys, headers)
        self.size_bytes += size_bytes
        piece = Piece(chunk, indexes, self, start)
        self.pieces.append(piece)
        chunk.pieces.append(piece)

    def copy(self, chunk: Chunk) -> None:
        """Take a whole batch, and nothing else."""
        assert chunk.copied is not None
        self.copied = chunk.copied.batch
        self.size_bytes = chunk.size_bytes
        piece = Piece(chunk, range(chunk.count), self, 0)
        self.pieces.append(piece)
        chunk.pieces.append(piece)

    def _extend(
        self, values: Column, timestamps: list[int] | int, keys: Column | None, headers: list[Headers] | None
    ) -> None:
        old, new = len(self.values), len(values)
        if self.timestamps != timestamps or isinstance(timestamps, list):
            self.timestamps = _stretched(self.timestamps, old) + _stretched(timestamps, new)
        if keys is not None or self.keys is not None:
            self.keys = [*(self.keys or [None] * old), *(keys or [None] * new)]
        if headers is not None or self.headers is not None:
            self.headers = (self.headers or [()] * old) + (headers or [()] * new)
        if isinstance(self.values, list):
            self.values += values
        else:
            self.values = [*self.values, *values]

    def number(self, identity: Identity, sequence: int) -> None:
        self.identity = identity
        self.sequence = sequence
        self.encoded = None

    def encode(self, encoding: Encoding, pool: BufferPool) -> bytearray | Joined:
        if self.encoded is None and self.copied is not None:
            header = header_for_copy(
                self.copied,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                base_sequence=self.sequence,
                is_transactional=encoding.is_transactional,
            )
            self.encoded = Joined((header, memoryview(self.copied)[HEADER_SIZE:]))
        elif self.encoded is None:
            one_time = isinstance(self.timestamps, int)
            memory = pool.take()
            self.encoded = build_batch(
                self.values,
                timestamp=self.timestamps if isinstance(self.timestamps, int) else self.timestamps[0],
                keys=self.keys,
                timestamps=None if one_time else self.timestamps,  # type: ignore[arg-type]
                headers=self.headers,
                memory=memory,
                codec=encoding.codec,
                level=encoding.level,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                base_sequence=self.sequence,
                is_transactional=encoding.is_transactional,
            )
            if self.encoded is not memory:
                pool.give(memory)
        return self.encoded

    def halves(self) -> tuple[Batch, Batch]:
        """Two of about the same size that take its place, its pieces cut where it is cut."""
        self._decode()
        middle = self.count // 2
        first, second = Batch(self.queue, self.deadline), Batch(self.queue, self.deadline)
        for piece in self.pieces:
            piece.chunk.let_go_of(piece)
            cut = min(max(middle - piece.start, 0), len(piece.indexes))
            for half, indexes in ((first, piece.indexes[:cut]), (second, piece.indexes[cut:])):
                if indexes:
                    half.add(piece.chunk, indexes, 0)
        first.size_bytes = self.size_bytes // 2
        second.size_bytes = self.size_bytes - first.size_bytes
        return first, second

    def without(self, positions: Iterable[int]) -> tuple[Batch, Batch]:
        """Two that take its place: of the records at these positions, and of the others."""
        self._decode()
        chosen = set(positions)
        taken, left = Batch(self.queue, self.deadline), Batch(self.queue, self.deadline)
        for piece in self.pieces:
            piece.chunk.let_go_of(piece)
            by_part: tuple[list[int], list[int]] = ([], [])
            for position, index in enumerate(piece.indexes, piece.start):
                by_part[position not in chosen].append(index)
            for part, indexes in zip((taken, left), by_part, strict=True):
                if indexes:
                    part.add(piece.chunk, indexes, 0)
        taken.size_bytes = self.size_bytes * len(chosen) // self.count
        left.size_bytes = self.size_bytes - taken.size_bytes
        return taken, left

    @property
    def is_readable(self) -> bool:
        """Whether it can be taken apart: a whole batch as somebody gave it may hold anything."""
        try:
            self._decode()
        except CorruptBatch:
            return False
        return True

    @property
    def why_damaged(self) -> str | None:
        """What is wrong with a whole batch that was to be sent on; None where nothing is."""
        if self.copied is None:
            return None
        try:
            check_batch(self.copied)
        except CorruptBatch as error:
            return f"a batch that was to be sent on is damaged: {error}"
        return None

    def _decode(self) -> None:
        if self.copied is not None:
            self.pieces[0].chunk.decode()
            self.copied = None

    def settle(self, outcome: Outcome) -> None:
        """It is decided. Those who gave the records are told."""
        self.outcome = outcome
        self.values = []
        self.keys = self.headers = self.encoded = self.copied = None
        self.timestamps = 0
        for piece in self.pieces:
            piece.chunk.settle(piece.indexes)

    def count_unobserved(self) -> int:
        """How many of its records nobody has asked for."""
        return sum(piece.chunk.count_unobserved(piece.indexes) for piece in self.pieces)

    def delivery(self, position: int, timestamp_ms: int) -> Delivery:
        outcome = self.outcome
        assert outcome is not None
        return Delivery(
            self.queue.topic,
            self.queue.index,
            outcome.offset(position),
            timestamp_ms if outcome.log_append_time_ms < 0 else outcome.log_append_time_ms,
            outcome.record_errors.get(position, outcome.error),
        )


def _stretched(timestamps: list[int] | int, count: int) -> list[int]:
    return timestamps if isinstance(timestamps, list) else [timestamps] * count
