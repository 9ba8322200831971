"""What the leader does to produced records before it appends them.

The answers are those of Apache Kafka 4.3.1, in its order: the first thing that is wrong decides. Where Kafka
only answers "unknown error" because something broke inside it, or accepts a record that no consumer could
read, docs/records.md says what is done here instead.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from ottla.records import batch as at
from ottla.records.batch import BatchHeader, Buffer, CorruptBatch
from ottla.records.codec import (
    LEAST_INT64,
    MOST_INT64,
    PlainCheck,
    Scan,
    decode_records,
    encode_columns,
    scan_records,
)
from ottla.records.compression import (
    NAMES,
    NONE,
    ZSTD,
    CompressionFailed,
    TooLarge,
    compress,
    decompress_to_look,
)
from ottla.records.memory import wrapping_add, wrapping_subtract
from ottla.records.placement import Placement, Stray
from ottla.wire.errors import ApiError, ErrorCode

LEAST_LEGACY_BYTES = 14  # the least that a length may say in any format
TO_MAGIC_BYTES = at.MAGIC_AT + 1
FIRST_ZSTD_VERSION = 7
SHOWN_ERRORS = 3
MOST_ERRORS = 1000  # that an answer names
AT_ONCE_BYTES = 4 << 20  # what decompresses to more is looked at in steps
COMPRESSED_AT_ONCE_BYTES = 1 << 15  # what is compressed anew is compressed elsewhere if it is more
CHECKED_AT_ONCE = 2000  # records that are looked at one by one

RecordError = tuple[int, str]  # index of the record in its batch, what is wrong with it


class InvalidRecords(ApiError):
    """The records are refused."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        record_errors: list[RecordError] | None = None,
        *,
        is_log_reached: bool = True,
        is_told: bool = False,
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors or []
        self.is_log_reached = is_log_reached
        """Whether the answer tells the log's start offset. Kafka finds some errors before it knows the log."""
        self.is_told = is_told or bool(self.record_errors)
        """Whether the answer has the message, too. Kafka leaves it out for most errors."""


class MisplacedKeys(InvalidRecords):
    """Keys belong to other partitions since the topic has grown in order: the producer does not know of those yet."""

    def __init__(self, header: BatchHeader, placement: Placement, partition: str) -> None:
        message = (
            f"Keys of these records do not belong to {partition}, now that the topic has "
            f"{placement.partition_count} partitions (partitioner {placement.partitioner})."
        )
        super().__init__(ErrorCode.NOT_LEADER_OR_FOLLOWER, message, is_log_reached=False, is_told=True)
        self.header = header


@dataclass(frozen=True)
class ProduceSettings:
    """What a topic's configuration asks of produced records."""

    is_log_append_time: bool = False
    before_max_ms: int = MOST_INT64
    after_max_ms: int = 3_600_000
    max_message_bytes: int = 1_048_588
    is_compacted: bool = False
    codec: int | None = None  # None: as the producer sent them
    level: int | None = None
    placement: Placement | None = None  # of the partition, where its topic has grown in order

    @functools.cached_property
    def plain_check(self) -> PlainCheck:
        """Finds batches in which nothing has to be changed, and no key looked at."""
        leaves_batches_alone = self.codec is None and not self.is_log_append_time and self.placement is None
        max_message_bytes = self.max_message_bytes if leaves_batches_alone else 0
        return PlainCheck(max_message_bytes, self.before_max_ms, self.after_max_ms, self.is_compacted)


class LargeBatch(Exception):
    """It takes more than a moment to look at this batch: `ottla.records.large` does, in steps."""

    def __init__(self, batch: memoryview, header: BatchHeader) -> None:
        super().__init__(f"a batch of {header.count} records and {header.size} bytes")
        self.batch = batch
        self.header = header


class Validated(NamedTuple):
    """A batch that may be appended: the producer's own memory where that could stay."""

    batch: bytearray | memoryview
    header: BatchHeader
    log_append_time: int  # -1 where the producer's timestamps stand


def validate_produce(
    records: Buffer | None,
    settings: ProduceSettings,
    partition: str,
    version: int,
    now_ms: int,
    has_transactional_id: bool = False,
) -> Validated:
    """Check one partition's records of a Produce request and make them ready for the log.

    `partition` is named in messages, as in "orders-0". `records` are changed in place where they are writable and need
    a stamp. LargeBatch where that would take too long at once; what concerns the whole batch has been checked then.
    """
    if records is not None:
        plain = plain_batch(records, settings, now_ms, has_transactional_id)
        if plain is not None:
            return plain
    return look_closely(records, settings, partition, version, now_ms, has_transactional_id)


def look_closely(
    records: Buffer | None,
    settings: ProduceSettings,
    partition: str,
    version: int,
    now_ms: int,
    has_transactional_id: bool,
) -> Validated:
    """The same for records that are not known to be plain."""
    header = single_batch(records, version)
    assert records is not None
    if header.is_transactional and not has_transactional_id:
        _refuse_early(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "A transactional batch needs a transactional id in its request",
        )
    view = memoryview(records)[: header.size]
    batch: bytearray | memoryview = view
    _check_whole(batch, header, settings, partition)
    _check_header(header)
    area = _area(view, header)
    codec = header.codec if settings.codec is None else settings.codec
    if codec not in (NONE, header.codec) and len(area) > COMPRESSED_AT_ONCE_BYTES:
        raise LargeBatch(view, header)
    try:
        scan = scan_records(area, header.count)
    except CorruptBatch as error:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, str(error)) from None
    if not scan.is_in_order and header.codec == codec != NONE:
        refuse_order()
    is_looked_into = settings.placement is not None or not is_plain(header, scan, settings, now_ms)
    if header.count > CHECKED_AT_ONCE and is_looked_into:
        raise LargeBatch(view, header)
    faults = Faults(header, settings, partition, now_ms)
    max_timestamp = faults.check(area, 0, header.count, scan)
    faults.refuse()
    if settings.is_log_append_time:
        max_timestamp = now_ms
    if codec != header.codec:
        batch, header = _recompressed(area, header, scan, codec, settings.level)
        if header.size > settings.max_message_bytes:
            refuse_size(header.size, settings, partition)
    return stamped(batch, header, settings.is_log_append_time, max_timestamp)


def plain_batch(
    records: Buffer, settings: ProduceSettings, now_ms: int, has_transactional_id: bool = False
) -> Validated | None:
    """An uncompressed batch that may stay as it is; None: look closer."""
    if settings.plain_check.count(records, now_ms, has_transactional_id):
        return Validated(memoryview(records), at.read_header(records), -1)
    return None


def single_batch(records: Buffer | None, version: int) -> BatchHeader:
    """The header of the one batch that a partition of a Produce request carries.

    A second batch is refused, but not one that is cut off: Kafka does not see it, and drops it.
    """
    size = _next_batch(records or b"", 0)
    if records is None or size is None:
        _refuse_early(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} must have at least one record batch per partition",
        )
    if records[at.MAGIC_AT] != at.MAGIC:
        _refuse_early(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} are only allowed to contain record batches with magic version 2",
        )
    if size < at.HEADER_SIZE:
        _refuse_early(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record batch is corrupted (the size {size} is smaller than the minimum allowed overhead "
            f"{at.HEADER_SIZE})",
        )
    header = at.read_header(records)
    if version < FIRST_ZSTD_VERSION and header.codec == ZSTD:
        _refuse_early(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    if len(records) > size and _next_batch(records, size) is not None:
        _refuse_early(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} are only allowed to contain exactly one record batch "
            "per partition",
        )
    return header


def _next_batch(records: Buffer, position: int) -> int | None:
    """Size of the batch at `position`; None when it is not whole."""
    available = len(records) - position
    if available < at.PREFIX_SIZE:
        return None
    _, length = at.PREFIX.unpack_from(records, position)
    if length < LEAST_LEGACY_BYTES:
        _refuse_loudly(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record size {length} is less than the minimum record overhead ({LEAST_LEGACY_BYTES})",
        )
    if available < TO_MAGIC_BYTES:
        return None
    magic = records[position + at.MAGIC_AT]
    if magic > at.MAGIC:
        signed = magic - 256 if magic > 127 else magic
        _refuse_loudly(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {signed}")
    size: int = length + at.PREFIX_SIZE
    return size if size <= available else None


def _check_whole(batch: Buffer, header: BatchHeader, settings: ProduceSettings, partition: str) -> None:
    if header.base_offset != 0:
        _refuse(
            ErrorCode.INVALID_RECORD,
            f"The baseOffset of the record batch in the append to {partition} should be 0, "
            f"but it is {header.base_offset}",
        )
    if header.size > settings.max_message_bytes:
        refuse_size(header.size, settings, partition)
    if at.computed_crc(batch, 0, header.size) != header.crc:
        _refuse_early(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record is corrupt (stored crc = {header.crc}) in topic partition {partition}.",
        )
    if header.codec >= len(NAMES):
        _refuse(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {header.codec}")


def _check_header(header: BatchHeader) -> None:
    message = None
    if header.last_offset_delta < 0:
        message = f"Batch has an invalid offset range: [{header.base_offset}, {header.last_offset}]"
    elif header.count <= 0:
        message = f"Invalid reported count for record batch: {header.count}"
    elif header.last_offset_delta + 1 != header.count:
        message = (
            f"Inconsistent batch offset range [{header.base_offset}, {header.last_offset}] "
            f"and count of records {header.count}"
        )
    elif header.producer_id >= 0 and header.base_sequence < 0:
        message = f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}"
    elif header.is_control:
        message = "Clients are not allowed to write control records"
    if message is not None:
        _refuse(ErrorCode.INVALID_RECORD, message)


def _area(batch: memoryview, header: BatchHeader) -> Buffer:
    try:
        return decompress_to_look(header.codec, batch[at.HEADER_SIZE :], AT_ONCE_BYTES)
    except (TooLarge, CompressionFailed):  # what fails is looked at as it comes out, for records may be wrong before
        raise LargeBatch(batch, header) from None


def is_plain(header: BatchHeader, scan: Scan, settings: ProduceSettings, now_ms: int) -> bool:
    """Whether records that were scanned may be appended, every one of them; if not, they have to be looked at."""
    if header.is_log_append_time or (settings.is_compacted and scan.first_null_key >= 0):
        return False
    if settings.is_log_append_time:
        return True
    least = header.base_timestamp + scan.least_timestamp_delta
    most = header.base_timestamp + scan.most_timestamp_delta
    is_in_time = now_ms - least <= settings.before_max_ms and most - now_ms <= settings.after_max_ms
    return is_in_time and least >= LEAST_INT64 and most <= MOST_INT64


class Faults:
    """What is wrong with the records of a batch, which may be looked at in portions."""

    def __init__(self, header: BatchHeader, settings: ProduceSettings, partition: str, now_ms: int) -> None:
        self._header = header
        self._settings = settings
        self._partition = partition
        self._now_ms = now_ms
        self._errors: list[RecordError] = []
        self._count = 0
        self._code = ErrorCode.INVALID_RECORD
        self._stray = Stray.NONE

    def check(self, area: Buffer, first: int, count: int, scan: Scan) -> int:
        """Look at records, the first of which has the number `first` in its batch; their highest timestamp."""
        placement = self._settings.placement
        if placement is not None:
            self._stray = max(self._stray, placement.look(area, count))
        if is_plain(self._header, scan, self._settings, self._now_ms):
            return max(self._header.base_timestamp + scan.most_timestamp_delta, at.NO_TIMESTAMP)
        return self._check_each(area, first, count)

    def _check_each(self, area: Buffer, first: int, count: int) -> int:
        """The slow way, where something may be wrong: it is known what, record by record."""
        header, settings = self._header, self._settings
        most = at.NO_TIMESTAMP
        append_time = header.max_timestamp if header.is_log_append_time else None
        records = decode_records(area, count, 0, header.base_timestamp, append_time)
        for index, record in enumerate(records, first):
            most = max(most, record.timestamp)
            if settings.is_compacted and record.key is None:
                message = f"Compacted topic cannot accept message without key in topic partition {self._partition}"
                self._add(index, message)
            elif fault := _timestamp_fault(record.timestamp, index, header, settings, self._now_ms):
                self._add(index, fault)
                self._code = ErrorCode.INVALID_TIMESTAMP
        return most

    def _add(self, index: int, message: str) -> None:
        self._count += 1
        if len(self._errors) < MOST_ERRORS:
            self._errors.append((index, message))

    def refuse(self) -> None:
        """Refuse the batch if anything is wrong."""
        if not self._count:
            self._refuse_strays()
            return
        if self._code == ErrorCode.INVALID_TIMESTAMP:
            message = "One or more records have been rejected due to invalid timestamp"
        else:
            shown = ", ".join(f"RecordError(batchIndex={i}, message='{m}')" for i, m in self._errors[:SHOWN_ERRORS])
            message = (
                f"One or more records have been rejected due to {self._count} record errors in total, "
                f"and only showing the first three errors at most: [{shown}]"
            )
        raise InvalidRecords(self._code, message, self._errors)

    def _refuse_strays(self) -> None:
        placement = self._settings.placement
        if placement is not None and self._stray:
            placement.strays += 1
            if self._stray is Stray.REFUSED:
                raise MisplacedKeys(self._header, placement, self._partition)


def _timestamp_fault(
    timestamp: int, index: int, header: BatchHeader, settings: ProduceSettings, now_ms: int
) -> str | None:
    if not settings.is_log_append_time and timestamp != at.NO_TIMESTAMP:
        age_ms = wrapping_subtract(now_ms, timestamp)
        if age_ms <= settings.before_max_ms and -age_ms <= settings.after_max_ms:
            return None
        first = wrapping_subtract(now_ms, settings.before_max_ms)
        last = wrapping_add(now_ms, settings.after_max_ms)
        return (
            f"Timestamp {timestamp} of message with offset {index} is out of range. "
            f"The timestamp should be within [{first}, {last}]"
        )
    if header.is_log_append_time:
        return (
            f"Invalid timestamp type in message with offset {index}. "
            "Producer should not set timestamp type to LogAppendTime."
        )
    return None


def _recompressed(
    area: Buffer, header: BatchHeader, scan: Scan, codec: int, level: int | None
) -> tuple[bytearray, BatchHeader]:
    """The batch in another codec. Attributes that are not a producer's to set are lost on the way."""
    if not scan.is_in_order:
        area = numbered(area, header, header.count)
    batch = bytearray(at.HEADER_SIZE)
    batch += compress(codec, area, level)
    return batch, header_of_recompressed(header, codec, len(batch))


def numbered(area: Buffer, header: BatchHeader, count: int, first: int = 0) -> Buffer:
    """Records of a batch with the offsets that follow from their places, the first of which is `first`."""
    records = decode_records(area, count, 0, header.base_timestamp)
    return encode_columns(
        [record.value for record in records],
        [record.key for record in records],
        [record.timestamp for record in records],
        [record.headers for record in records],
        range(first, first + count),
        header.base_timestamp,
    )


def header_of_recompressed(header: BatchHeader, codec: int, size_bytes: int) -> BatchHeader:
    kept = header.attributes & (at.TRANSACTIONAL | at.LOG_APPEND_TIME)
    return header._replace(length=size_bytes - at.PREFIX_SIZE, attributes=codec | kept, crc=0)


def stamped(
    batch: bytearray | memoryview, header: BatchHeader, is_log_append_time: bool, max_timestamp: int
) -> Validated:
    """Write timestamp type and highest timestamp, and the checksum again, where they differ."""
    attributes = header.attributes & ~at.LOG_APPEND_TIME
    if is_log_append_time:
        attributes |= at.LOG_APPEND_TIME
    is_new = isinstance(batch, bytearray)
    if is_new or attributes != header.attributes or max_timestamp != header.max_timestamp:
        if not is_new and memoryview(batch).readonly:
            batch = bytearray(batch)
        header = header._replace(attributes=attributes, max_timestamp=max_timestamp)
        at.HEADER.pack_into(batch, 0, *header)
        at.stamp_crc(batch, 0, header.size)
        header = header._replace(crc=at.stored_crc(batch))
    return Validated(batch, header, max_timestamp if is_log_append_time else at.NO_TIMESTAMP)


def refuse_order() -> NoReturn:
    _refuse(ErrorCode.UNKNOWN_SERVER_ERROR, "The offsets inside a compressed batch are not 0, 1, 2, ...")


def _refuse(code: ErrorCode, message: str) -> NoReturn:
    raise InvalidRecords(code, message)


def _refuse_early(code: ErrorCode, message: str) -> NoReturn:
    raise InvalidRecords(code, message, is_log_reached=False)


def _refuse_loudly(code: ErrorCode, message: str) -> NoReturn:
    raise InvalidRecords(code, message, is_log_reached=False, is_told=True)


def refuse_size(size: int, settings: ProduceSettings, partition: str) -> NoReturn:
    _refuse_early(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size in the append to {partition} is {size} bytes "
        f"which exceeds the maximum configured value of {settings.max_message_bytes}).",
    )
