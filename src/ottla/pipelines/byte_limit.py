"""How far a batch may go where its bytes are limited: what it would take is read before, and counted.

An estimate would fail where small records are followed by large ones, and then the batch is more than memory holds. So
the driver reads the batch as it lies in the topic; only what is compressed is looked into. It stops at the limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ottla.client import (
    EARLIEST,
    BatchReader,
    ClientError,
    FetchedData,
    Isolation,
    LogTruncated,
    MalformedAnswer,
    ServerError,
    TopicPartition,
    TopicRecreated,
)
from ottla.pipelines.client_options import Cluster
from ottla.records.batch import CorruptBatch
from ottla.records.codec import Record

Offsets = Mapping[TopicPartition, int]
DEFAULT_BATCH_BYTES = 64 << 20
"""Of what goes through the driver: Spark holds it several times over there, in 1 GB unless it is told otherwise."""
_LEAST_FETCH_BYTES = 64 << 10
_MOST_FETCH_BYTES = 4 << 20
_WAIT_MS = 20  # all that is asked for is there
_RECORD_BYTES = 10
"""Of a record beside its key, its value and its headers, about."""
_OF_LOSS = ("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID")


class ByteLimit:
    """Connects when it is first asked. What is sent to the workers of it are its settings alone."""

    def __init__(self, cluster: Cluster, isolation: Isolation, most_bytes: int, patience_ms: int) -> None:
        self._cluster, self._isolation = cluster, isolation
        self._most_bytes, self._patience_ms = most_bytes, patience_ms
        self._reader: BatchReader | None = None
        self._last_first: TopicPartition | None = None

    def __getstate__(self) -> dict[str, Any]:
        names = ("_cluster", "_isolation", "_most_bytes", "_patience_ms")
        return {name: getattr(self, name) for name in names} | {"_reader": None, "_last_first": None}

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def limited(self, starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
        """Ends with no more bytes before them than the limit, all together; but one record, however large it is.

        The partitions are read by turns, and another is the first in each batch: none waits for ever.
        """
        places = sorted(place for place, end in ends.items() if end > starts[place])
        if not places:
            return dict(ends)
        last = self._last_first
        first = next((place for place in places if last is None or place > last), places[0])
        self._last_first = first
        walk = _Walk({place: (starts[place], ends[place]) for place in places}, self._most_bytes)
        reader = self._opened()
        try:
            reader.assign({first: starts[first]})
            self._read(reader, walk, lambda: walk.reached[first] > starts[first])
            reader.assign({place: starts[place] for place in places if place != first})
            self._read(reader, walk, lambda: not walk.open)
        finally:
            self.close() if walk.is_broken else reader.drop(places)
        return {**ends, **walk.reached}

    def _opened(self) -> BatchReader:
        if self._reader is None:
            self._reader = BatchReader(
                self._cluster.bootstrap, isolation=self._isolation, partition_bytes=_fetch_bytes(self._most_bytes),
                options=self._cluster.options,
            ).open()  # fmt: skip
        return self._reader

    def _read(self, reader: BatchReader, walk: _Walk, is_enough: Callable[[], bool]) -> None:
        last_progress = time.monotonic()
        while not is_enough() and not walk.is_full:
            try:
                portions = reader.poll(_WAIT_MS)
            except ClientError as error:
                walk.is_broken = True
                self._pass_over(reader, walk, error)
                continue
            for portion in portions:
                if walk.take(portion):
                    reader.drop([TopicPartition(portion.topic, portion.partition)])
            if portions:
                last_progress = time.monotonic()
            elif time.monotonic() - last_progress > self._patience_ms / 1000:
                walk.is_broken = True
                raise TimeoutError(
                    f"{min(walk.open)}: nothing came behind offset {walk.reached[min(walk.open)]} within "
                    f"{self._patience_ms} ms (option kafkaConsumer.pollTimeoutMs)"
                )

    def _pass_over(self, reader: BatchReader, walk: _Walk, error: ClientError) -> None:
        """What is lost has no bytes. The tasks find it lost, too, and say so."""
        if error.topic is None or error.partition is None:
            raise error
        place = TopicPartition(error.topic, error.partition)
        if isinstance(error, ServerError) and error.name == "OFFSET_OUT_OF_RANGE":
            with self._cluster.admin() as admin:
                first = admin.find_offsets(place.topic, EARLIEST, [place.partition])[place.partition]
            if first <= walk.reached[place]:  # it is the end that is lost
                walk.stop(place)
            elif walk.skip(place, first):
                reader.assign({place: first})
                return
        elif isinstance(error, TopicRecreated) or (isinstance(error, ServerError) and error.name in _OF_LOSS):
            walk.skip(place, None)
        elif isinstance(error, LogTruncated):
            walk.stop(place)
        else:
            raise error
        reader.drop([place])


class _Walk:
    """How far each partition is read, and what is left of the limit."""

    def __init__(self, ranges: Mapping[TopicPartition, tuple[int, int]], most_bytes: int) -> None:
        self.reached = {place: start for place, (start, _) in ranges.items()}
        self.open = {place: end for place, (_, end) in ranges.items()}
        self.is_full = self.is_broken = False
        self._left, self._is_empty = most_bytes, True

    def take(self, portion: FetchedData) -> bool:
        """Whether the partition is read to its end with this."""
        place = TopicPartition(portion.topic, portion.partition)
        end = self.open.get(place)
        if end is None or self.is_full or portion.fetch_offset < self.reached[place]:
            return False
        try:
            for batch in portion.visible():
                if batch.header.base_offset >= end:
                    break
                size = len(batch.area())
                is_whole = batch.header.base_offset >= portion.fetch_offset and batch.header.next_offset <= end
                if is_whole and size <= self._left:
                    self._count(size)
                elif not self._take_each(place, batch.records(portion.fetch_offset), end):
                    return False
                self.reached[place] = min(batch.header.next_offset, end)
            self.reached[place] = min(portion.next_offset, end)
        except (MalformedAnswer, CorruptBatch):  # the task that reads up to there will say it
            self.is_full = True
            if self._is_empty:
                self.reached[place] = min(self.reached[place] + 1, end)
            return False
        return self._is_read(place)

    def _take_each(self, place: TopicPartition, records: list[Record], end: int) -> bool:
        """Of a batch that is not wanted whole or is too large."""
        for record in records:
            if record.offset >= end:
                break
            size = _size(record)
            if size > self._left and not self._is_empty:
                self.is_full = True
                return False
            self._count(size)
            self.reached[place] = record.offset + 1
        return True

    def skip(self, place: TopicPartition, first: int | None) -> bool:
        """Go on at the first offset that is there, and where nothing is, at the end: whether there is more to read."""
        end = self.open.get(place)
        if end is None:
            return False
        self.reached[place] = end if first is None else min(max(first, self.reached[place]), end)
        return not self._is_read(place)

    def stop(self, place: TopicPartition) -> None:
        """Go no further there."""
        if self.open.pop(place, None) is not None and self._is_empty:
            self.reached[place] += 1

    def _is_read(self, place: TopicPartition) -> bool:
        if self.reached[place] < self.open[place]:
            return False
        del self.open[place]
        return True

    def _count(self, size: int) -> None:
        self._left = max(self._left - size, 0)
        self._is_empty = False


def _size(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + _RECORD_BYTES


def _fetch_bytes(most_bytes: int) -> int:
    return min(max(most_bytes // 8, _LEAST_FETCH_BYTES), _MOST_FETCH_BYTES)
