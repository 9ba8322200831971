"""What one answer to Fetch brought of one partition: bytes as they came, decoded when somebody looks at them.

Which records may be seen is decided over the whole buffer, from the offset that was fetched, even if only a part of it
is handed out: whether a transaction was aborted depends on markers that may lie far behind its records.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ottla.client.consumer.visible import visible_batches
from ottla.client.errors import ClientError, MalformedAnswer, describe_place
from ottla.records.batch import Buffer, CorruptBatch, check_batch, whole_batches
from ottla.records.codec import Columns, ColumnsFull, Record
from ottla.records.read import Batch

FAR_BEHIND_THE_END = 10_000_000
"""By so many offsets no log grows between two looks at it, which an answer may be made of."""


class Fetched(NamedTuple):
    """Records of one partition, in their order, and what the broker said beside them."""

    topic: str
    partition: int
    records: list[Any]
    next_offset: int
    high_watermark: int


class Sound(NamedTuple):
    """Records up to `next_offset`, and what is wrong with what comes then, if anything is."""

    records: list[Record]
    next_offset: int
    damage: ClientError | None


class FetchedData:
    """`next_offset` is where the next fetch begins, by the headers of the batches."""

    __slots__ = (
        "_disorder", "_sound", "_sound_from", "aborted", "buffer", "epochs", "fetch_offset", "gap", "high_watermark",
        "next_offset", "partition", "size_bytes", "topic",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, fetch_offset: int, buffer: Buffer, aborted: list[tuple[int, int]],
        high_watermark: int,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.buffer = buffer
        self.aborted = aborted
        self.high_watermark = high_watermark
        self.size_bytes = len(buffer)
        self.next_offset = fetch_offset
        self.gap: tuple[int, int] | None = None
        """The first offsets that no batch covers, from and to. Compaction leaves such, and else only a loss does."""
        self.epochs: list[tuple[int, int]] = []
        """In which the records were written, and from which offsets on."""
        self._sound: Sound | None = None
        self._sound_from = 0
        self._disorder = ""
        """Why the batches end where they do: the next one does not follow them."""
        last_epoch: int | None = None
        last_position = last_start = 0
        with contextlib.suppress(CorruptBatch):  # told by whoever looks at the records
            for position, header in whole_batches(buffer):
                if header.base_offset < self.next_offset and position:
                    self._cut(last_position, last_start, position, header.base_offset)
                    return
                if 0 <= high_watermark < header.next_offset - FAR_BEHIND_THE_END:
                    self.buffer = memoryview(buffer)[:position]
                    self._disorder = (
                        f"a batch that ends at offset {header.last_offset} is in a log that ends at {high_watermark}"
                    )
                    return
                last_position, last_start = position, self.next_offset
                if header.base_offset > self.next_offset and self.gap is None:
                    self.gap = self.next_offset, header.base_offset
                if header.leader_epoch != last_epoch:
                    last_epoch = header.leader_epoch
                    self.epochs.append((header.base_offset, last_epoch))
                self.next_offset = header.next_offset

    def _cut(self, last_position: int, last_start: int, position: int, base_offset: int) -> None:
        """A batch begins below the end of the last one. Offsets of batches only ascend, and no checksum covers them:
        one of the two is damaged, and that is the last one if they ascend without it."""
        end = self.next_offset
        if base_offset >= last_start:
            position, self.next_offset = last_position, last_start
            self.epochs = [(start, epoch) for start, epoch in self.epochs if start < last_start]
            self.gap = None if self.gap is None or self.gap[0] >= last_start else self.gap
        self.buffer = memoryview(self.buffer)[:position]
        self._disorder = f"a batch that ends at offset {end - 1} is followed by offset {base_offset}"

    def leave_answer(self) -> None:
        """It may be held for long: its bytes are copied, unless they are most of the answer that they came in. What
        other partitions had in that answer would stay with them, uncounted."""
        buffer = self.buffer
        if isinstance(buffer, memoryview) and 2 * len(buffer) < len(buffer.obj):  # type: ignore[arg-type]
            self.buffer = bytes(buffer)

    def sound(self, start: int, most: int | None = None) -> Sound:
        """The records from `start` on that may be seen, at most so many, up to the first damage."""
        sound = self._sound
        if sound is None or start < self._sound_from:
            sound = self._decode(start)
            if start > self.fetch_offset:  # it was put back, and may be again; else the records are the user's alone
                self._sound, self._sound_from = sound, start
        elif start > self._sound_from:  # the user was in the middle: what is decoded stays decoded
            first = bisect_left(sound.records, start, key=lambda record: record.offset)
            sound = self._sound = sound._replace(records=sound.records[first:])
            self._sound_from = start
        if most is not None and len(sound.records) > most:
            return Sound(sound.records[:most], sound.records[most].offset, None)
        return sound

    def _decode(self, start: int) -> Sound:
        records: list[Record] = []

        def take(batch: Batch) -> None:
            nonlocal records
            decoded = batch.records(start)
            if records:
                records += decoded
            else:
                records = decoded

        next_offset, damage = self._walk(start, take)
        return Sound(records, next_offset, damage)

    def columns(self, start: int, *, with_headers: bool) -> tuple[list[Columns], int, ClientError | None]:
        """The same as columns, in as few as can hold them; then as in Sound."""
        all_columns = [Columns(with_headers)]

        def take(batch: Batch) -> None:
            try:
                batch.append_to(all_columns[-1], start)
            except ColumnsFull:
                all_columns.append(Columns(with_headers))
                batch.append_to(all_columns[-1], start)

        next_offset, damage = self._walk(start, take)
        return all_columns, next_offset, damage

    def _walk(self, start: int, take: Callable[[Batch], None]) -> tuple[int, ClientError | None]:
        """Takes what may be seen, batch after batch: up to where, and what is wrong there."""
        next_offset = start
        try:
            for batch, is_visible in self._batches(start):
                if is_visible:
                    take(batch)
                next_offset = batch.header.next_offset
        except CorruptBatch as error:
            return next_offset, self._damage(next_offset, error)
        if self._leads_nowhere:
            return start, self._damage(start, self._no_batch())
        return max(start, self.next_offset), None

    def visible(self, *, check_crc: bool = True) -> Iterator[Batch]:
        """The batches that may be seen. MalformedAnswer for damage, with what comes before it already given.

        Without `check_crc` the checksums are left to the caller: who reads records calls `check` before. A batch that
        `Producer.send_batches` sends on keeps a wrong checksum, and the broker refuses it.
        """
        next_offset = self.fetch_offset
        try:
            for batch, is_visible in self._batches(self.fetch_offset, check_crc=check_crc):
                if is_visible:
                    yield batch
                next_offset = batch.header.next_offset
        except CorruptBatch as error:
            raise self._damage(next_offset, error) from error
        if self._leads_nowhere:
            raise self._damage(next_offset, self._no_batch())

    @property
    def _leads_nowhere(self) -> bool:
        """Whether to fetch on from here would bring the same again: a broker answers with a whole batch at least."""
        return self.size_bytes > 0 and self.next_offset <= self.fetch_offset

    def _no_batch(self) -> CorruptBatch:
        return CorruptBatch(f"{self.size_bytes} bytes hold no whole batch")

    def check(self, batch: Batch) -> None:
        """MalformedAnswer where the checksum of a batch is wrong."""
        try:
            check_batch(batch.bytes)
        except CorruptBatch as error:
            raise self._damage(batch.header.base_offset, error) from error

    def _batches(self, start: int, *, check_crc: bool = True) -> Iterator[tuple[Batch, bool]]:
        """Each batch that reaches `start`, and whether it may be seen. CorruptBatch at the first that is not sound."""
        batches = visible_batches(self.buffer, self.fetch_offset, self.aborted, check_crc=check_crc)
        for batch, is_visible in batches:
            if batch.header.last_offset >= start:
                yield batch, is_visible
        if self._disorder:
            raise CorruptBatch(self._disorder)

    def _damage(self, offset: int, error: CorruptBatch) -> MalformedAnswer:
        return MalformedAnswer(
            f"{describe_place(self.topic, self.partition)}: a damaged batch at or behind offset {offset}: {error}",
            topic=self.topic,
            partition=self.partition,
        )
