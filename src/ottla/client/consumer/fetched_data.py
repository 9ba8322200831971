"""What one answer brought of one partition: bytes as they came, decoded when somebody looks at them."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import NamedTuple

from ottla.client.consumer.visible import visible_batches
from ottla.client.errors import MalformedAnswer, describe_place
from ottla.records.batch import Buffer, CorruptBatch, whole_batches
from ottla.records.codec import Columns, ColumnsFull, Record
from ottla.records.read import Batch


class Fetched(NamedTuple):
    """Records of one partition, in their order, and what the broker said beside them."""

    topic: str
    partition: int
    records: list[Record]
    next_offset: int
    high_watermark: int


class Portion:
    """The records from `start` on. `next_offset` is where the next portion begins."""

    __slots__ = (
        "aborted", "buffer", "end", "gap", "high_watermark", "next_offset", "partition", "size_bytes", "start", "topic",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, start: int, buffer: Buffer, aborted: list[tuple[int, int]],
        high_watermark: int,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.partition = partition
        self.start = start
        self.buffer = buffer
        self.aborted = aborted
        self.high_watermark = high_watermark
        self.size_bytes = len(buffer)
        self.end: int | None = None
        """The first record that is not part of it, if that is not the end of the buffer."""
        self.next_offset = start
        self.gap: tuple[int, int] | None = None
        """The first offsets that no batch covers, from and to. Compaction leaves such, and else only a loss does."""
        with contextlib.suppress(CorruptBatch):  # told by whoever looks at the records
            for _, header in whole_batches(buffer):
                if header.base_offset > self.next_offset and self.gap is None:
                    self.gap = self.next_offset, header.base_offset
                self.next_offset = header.next_offset

    def records(self) -> list[Record]:
        """Those that may be seen."""
        records: list[Record] = []
        for batch in self.visible():
            found = batch.records(self.start)
            if records:
                records += found
            else:
                records = found
        return records if self.end is None else [record for record in records if record.offset < self.end]

    def head(self, count: int) -> Portion:
        """Its first records, at most so many, as a portion of their own; this one goes on behind them."""
        records = self.records()
        head = copy.copy(self)
        if len(records) > count:
            head.end = head.next_offset = records[count].offset
        self.start = head.next_offset
        return head

    def fetched(self) -> Fetched:
        return Fetched(self.topic, self.partition, self.records(), self.next_offset, self.high_watermark)

    def columns(self, *, with_headers: bool) -> Iterator[Columns]:
        """The same as columns, in as few as can hold them."""
        columns = Columns(with_headers)
        for batch in self.visible():
            try:
                batch.append_to(columns, self.start)
            except ColumnsFull:
                yield columns
                columns = Columns(with_headers)
                batch.append_to(columns, self.start)
        yield columns

    def visible(self) -> Iterator[Batch]:
        """The batches that may be seen. MalformedAnswer for damage, with what comes before it already given."""
        at = self.start
        try:
            for batch, is_visible in visible_batches(self.buffer, self.start, self.aborted):
                if is_visible:
                    yield batch
                at = batch.header.next_offset
        except CorruptBatch as error:
            raise MalformedAnswer(
                f"{describe_place(self.topic, self.partition)}: a damaged batch at or behind offset {at}: {error}",
                topic=self.topic,
                partition=self.partition,
            ) from error
