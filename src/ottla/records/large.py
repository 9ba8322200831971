"""Produced batches that take a while to look at, in steps and with bounded memory: large ones, and bombs.

A batch of a few bytes can decompress to gigabytes. Kafka looks at all of them; here a batch may become
`MOST_BATCH_RATIO` times as large as max.message.bytes, and one record in it `MOST_RECORD_RATIO` times. No client that
compresses what it was given comes near.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.records import batch as at
from ottla.records.batch import BatchHeader, CorruptBatch
from ottla.records.codec import Scan, scan_records
from ottla.records.compression import NONE, CompressionFailed, TooLarge
from ottla.records.growing import GrowingBatch, Job
from ottla.records.portions import Portion, record_portions
from ottla.records.validate import (
    Faults,
    InvalidRecords,
    LargeBatch,
    ProduceSettings,
    Validated,
    header_of_recompressed,
    numbered,
    refuse_order,
    refuse_size,
    stamped,
)
from ottla.wire.errors import ErrorCode

MOST_BATCH_RATIO = 128
MOST_RECORD_RATIO = 16

ValidateSteps = Generator[Job | None, None, Validated]


def validate_large(large: LargeBatch, settings: ProduceSettings, *, partition: str, now_ms: int) -> ValidateSteps:
    """What `validate_produce` does with any other batch. What is yielded and not None must be run, on any thread."""
    header = large.header
    codec = header.codec if settings.codec is None else settings.codec
    recompressed = _Recompressed(header, codec, settings, partition) if codec != header.codec else None
    faults = Faults(header, settings, partition, now_ms)
    max_timestamp = at.NO_TIMESTAMP
    for portion in _portions(large, settings.max_message_bytes):
        scan = _scanned(portion) if portion.records else None
        if scan is not None:
            if not scan.is_in_order and header.codec == codec != NONE:
                refuse_order()
            max_timestamp = max(max_timestamp, faults.check(*portion, scan))
        yield None if recompressed is None else recompressed.add(portion, scan)
    faults.refuse()
    if settings.is_log_append_time:
        max_timestamp = now_ms
    if recompressed is None:
        return stamped(large.batch, header, settings.is_log_append_time, max_timestamp)
    yield recompressed.finish
    batch, header = recompressed.result()
    return stamped(batch, header, settings.is_log_append_time, max_timestamp)


def _portions(large: LargeBatch, max_message_bytes: int) -> Generator[Portion, None, None]:
    try:
        yield from record_portions(
            large.batch, large.header, MOST_BATCH_RATIO * max_message_bytes, MOST_RECORD_RATIO * max_message_bytes
        )
    except TooLarge as error:
        # Kafka has no such limit. This answer makes a producer send smaller batches.
        raise InvalidRecords(ErrorCode.MESSAGE_TOO_LARGE, str(error), is_log_reached=False) from None
    except CompressionFailed as error:
        raise InvalidRecords(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
    except CorruptBatch as error:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, str(error)) from None


def _scanned(portion: Portion) -> Scan:
    try:
        return scan_records(portion.area, portion.records, portion.first)
    except CorruptBatch as error:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, str(error)) from None


class _Recompressed:
    """The batch in another codec, as it grows."""

    def __init__(self, header: BatchHeader, codec: int, settings: ProduceSettings, partition: str) -> None:
        self._header = header
        self._codec = codec
        self._settings = settings
        self._partition = partition
        self._growing = GrowingBatch(codec, settings.level)
        self.finish = self._growing.finish

    def add(self, portion: Portion, scan: Scan | None) -> Job | None:
        """The work that is to be done before the next is added, if there is any."""
        self._refuse_too_large()
        area = portion.area
        if scan is not None and not scan.is_in_order:
            area = numbered(area, self._header, portion.records, portion.first)
        return self._growing.add(area)

    def result(self) -> tuple[bytearray, BatchHeader]:
        self._refuse_too_large()
        batch = self._growing.bytes
        return batch, header_of_recompressed(self._header, self._codec, len(batch))

    def _refuse_too_large(self) -> None:
        if len(self._growing.bytes) > self._settings.max_message_bytes:
            refuse_size(len(self._growing.bytes), self._settings, self._partition)
