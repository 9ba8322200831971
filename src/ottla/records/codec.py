"""Records inside a batch: to bytes, from bytes, into Arrow-shaped columns.

This is the one module that is compiled: codec.pxd gives it C types, and where it was not compiled the same
text runs as Python. So it is written plainly: integers that fit 64 bits, positions instead of cursors, every
bound checked before a byte is read. An "area" is the records part of a batch, uncompressed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from ottla.records import checksum
from ottla.records.batch import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    COUNT_AT,
    CRC_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    PREFIX_SIZE,
    PRODUCER_ID_AT,
    TRANSACTIONAL,
    Buffer,
    CorruptBatch,
)

try:
    import cython  # type: ignore[import-untyped]
except ModuleNotFoundError:
    from ottla.records import memory as cython

if not cython.compiled:
    from ottla.records.memory import (
        Cell,
        Fields,
        big_endian,
        cell_in,
        cell_of,
        copy,
        copy_range,
        fill_ones,
        int32s,
        int64,
        int64s,
        octets,
        processor_crc,
        put_offset_and_epoch,
        read_offset,
        read_varint,
        read_varlong,
        resize,
        resize_numbers,
        view_of,
        wrapping_add,
        wrapping_subtract,
        writable,
    )

COMPILED = cython.compiled

Header = tuple[str, bytes | None]
KeyEntry = tuple[int, bytes | None, bool]  # offset delta, key, whether the value is null
RecordTuple = tuple[int, Buffer | None, Buffer | None, Iterable[tuple[str, Buffer | None]]]

Column: TypeAlias = "list[bytes | None] | Rows"

LEAST_RECORD_BYTES = 7  # seven fields of one byte each
MOST_RECORD_BYTES = 0x7FFFFFFF
MOST_SIZE_BYTES = 5  # of the varint in front of a record
MOST_COLUMN_BYTES = 0x7FFFFFFF  # Arrow's offsets are 32 bits wide
LEAST_INT64 = -0x8000000000000000
MOST_INT64 = 0x7FFFFFFFFFFFFFFF
LEAST_TIME, MOST_TIME = LEAST_INT64, MOST_INT64
MOST_USUAL = 0x3FFFFFFFFFFFFFFF  # of timestamps: sums and differences of two are within 64 bits

# What can be wrong with a record. The reader returns these in place of the next position.
BAD_SIZE, BAD_TIMESTAMP, BAD_OFFSET, BAD_KEY, BAD_VALUE, BAD_HEADERS, NOT_FILLED = -1, -2, -3, -4, -5, -6, -7
FAULTS = {
    BAD_SIZE: "its size does not fit the batch",
    BAD_TIMESTAMP: "its timestamp is cut or too long",
    BAD_OFFSET: "its offset is cut or too long",
    BAD_KEY: "its key does not fit the record",
    BAD_VALUE: "its value does not fit the record",
    BAD_HEADERS: "its headers do not fit the record",
    NOT_FILLED: "its fields do not fill its size",
}


class ColumnsFull(OverflowError):
    """The columns cannot take this batch: finish them and begin new ones."""


# A record holds no reference that could lead back to it, so the collector need not look at it. Cython obeys these
# here alone, not in the .pxd file, and only above `cclass`.
@cython.final
@cython.no_gc
@cython.freelist(256)
@cython.cclass
class Record:
    """One record as a reader gets it. Not to be changed."""

    __slots__ = ("headers", "key", "offset", "timestamp", "value")

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    def __init__(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Header, ...] = (),
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers

    def _fields(self) -> tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]:
        return self.offset, self.timestamp, self.key, self.value, self.headers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )

    def __reduce__(self) -> tuple[type[Record], tuple[object, ...]]:
        return Record, self._fields()


class Scan(NamedTuple):
    """What validation asks of an area; delta bounds are of no meaning when it holds no records."""

    least_timestamp_delta: int
    most_timestamp_delta: int
    first_null_key: int  # index of the record, -1 for none
    is_in_order: bool  # offset deltas are 0, 1, 2, ...


def uncleared(size: int) -> bytearray:
    """Memory to be written before it is read, where it is compiled: to clear it would be to write it twice."""
    out = bytearray()
    resize(out, size)
    return out


# Reading. Faults come back as values, for a C function that cannot raise costs nothing to call.


def fault(kind: int) -> Fields:
    return Fields(kind, 0, 0, 0, 0, 0, 0, 0, 0)


def parse_record(data: bytes, position: int, end: int) -> Fields:
    """Where the parts of the record at `position` are, all of them checked."""
    size, position = read_varint(data, position, end)
    if position < 0 or size < 1 or size > end - position:
        return fault(BAD_SIZE)
    end = position + size
    timestamp_delta, position = read_varlong(data, position + 1, end)  # the byte before it is unused
    if position < 0:
        return fault(BAD_TIMESTAMP)
    offset_delta, position = read_varint(data, position, end)
    if position < 0:
        return fault(BAD_OFFSET)
    key_size, key_at = read_varint(data, position, end)
    if key_at < 0 or key_size > end - key_at:
        return fault(BAD_KEY)
    value_size, value_at = read_varint(data, key_at + key_size if key_size > 0 else key_at, end)
    if value_at < 0 or value_size > end - value_at:
        return fault(BAD_VALUE)
    header_count, headers_at = read_varint(data, value_at + value_size if value_size > 0 else value_at, end)
    if headers_at < 0 or header_count < 0:
        return fault(BAD_HEADERS)
    position = skip_headers(data, headers_at, end, header_count) if header_count else headers_at
    if position < 0:
        return fault(BAD_HEADERS)
    if position != end:
        return fault(NOT_FILLED)
    return Fields(end, timestamp_delta, offset_delta, key_at, key_size, value_at, value_size, headers_at, header_count)


def skip_headers(data: bytes, position: int, end: int, count: int) -> int:
    """The position behind `count` headers, -1 if they do not fit."""
    if count > (end - position) // 2:
        return -1
    for _ in range(count):
        size, position = read_varint(data, position, end)
        if position < 0 or size < 0 or size > end - position:
            return -1
        size, position = read_varint(data, position + size, end)
        if position < 0 or size > end - position:
            return -1
        if size > 0:
            position += size
    return position


def read_headers(data: bytes, position: int, end: int, count: int) -> tuple[Header, ...]:
    """Headers that parse_record has checked. A name that is not UTF-8 is repaired, as Java does."""
    pairs: list[Header] = []
    for _ in range(count):
        size, position = read_varint(data, position, end)
        name = data[position : position + size]
        size, position = read_varint(data, position + size, end)
        if size < 0:
            pairs.append((name.decode("utf-8", "replace"), None))
        else:
            pairs.append((name.decode("utf-8", "replace"), data[position : position + size]))
            position += size
    return tuple(pairs)


def malformed(index: int, fault: int) -> CorruptBatch:
    return CorruptBatch(f"record {index} of the batch: {FAULTS[fault]}")


def check_count(count: int, size: int) -> None:
    """Refuse a count that cannot be true before anything is made for it."""
    if count < 0 or count > size // LEAST_RECORD_BYTES:
        raise CorruptBatch(f"{count} records do not fit in {size} bytes")


def check_end(position: int, size: int, count: int) -> None:
    if position != size:
        raise CorruptBatch(f"{size - position} bytes follow the last of {count} records")


def decode_records(
    area: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    log_append_time: int | None = None,
    start_offset: int = LEAST_INT64,
) -> list[Record]:
    """The records from `start_offset` on. `log_append_time` takes the place of each one's own timestamp."""
    view = memoryview(area)
    data = octets(view)
    end = view.nbytes
    check_count(count, end)
    fixed_timestamp = log_append_time is not None
    timestamp = 0
    if log_append_time is not None:
        timestamp = int64(log_append_time)
    position = 0
    records: list[Record] = []
    for index in range(count):
        fields = parse_record(data, position, end)
        if fields.end < 0:
            raise malformed(index, fields.end)
        position = fields.end
        offset = wrapping_add(base_offset, fields.offset_delta)
        if offset < start_offset:
            continue
        if not fixed_timestamp:
            timestamp = wrapping_add(base_timestamp, fields.timestamp_delta)
        record = Record.__new__(Record)
        record.offset = offset
        record.timestamp = timestamp
        record.key = data[fields.key_at : fields.key_at + fields.key_size] if fields.key_size >= 0 else None
        record.value = data[fields.value_at : fields.value_at + fields.value_size] if fields.value_size >= 0 else None
        record.headers = (
            read_headers(data, fields.headers_at, position, fields.header_count) if fields.header_count else ()
        )
        records.append(record)
    check_end(position, end, count)
    return records


def scan_records(area: Buffer, count: int, first: int = 0) -> Scan:
    """See that exactly `count` whole records fill the area, and what validation must know of them.

    `first`: the number of the first of them in its batch, where the area is a part of that.
    """
    view = memoryview(area)
    data = octets(view)
    end = view.nbytes
    check_count(count, end)
    least = MOST_INT64
    most = LEAST_INT64
    null_key = -1
    in_order = True
    position = 0
    for index in range(first, first + count):
        fields = parse_record(data, position, end)
        if fields.end < 0:
            raise malformed(index, fields.end)
        position = fields.end
        least = min(least, fields.timestamp_delta)
        most = max(most, fields.timestamp_delta)
        if fields.key_size < 0 and null_key < 0:
            null_key = index
        if fields.offset_delta != index:
            in_order = False
    check_end(position, end, count)
    return tuple.__new__(Scan, (least, most, null_key, in_order))  # its constructor would take half of the time


def whole_records(area: Buffer, most: int) -> tuple[int, int, int]:
    """How many records at the start of an area are whole, `most` at most; where they end; the size of the next.

    The size is 0 where that is cut as well, or there is no next one. Only the sizes of the records are looked at.
    """
    view = memoryview(area)
    data = octets(view)
    end = view.nbytes
    position = 0
    for index in range(most):
        size, body = read_varint(data, position, end)
        if body < 0:
            if end - position >= MOST_SIZE_BYTES:
                raise malformed(index, BAD_SIZE)
            return index, position, 0
        if size < 1:
            raise malformed(index, BAD_SIZE)
        if size > end - body:
            return index, position, body - position + size
        position = body + size
    return most, position, 0


class PlainCheck:
    """The usual batch at a glance: one that is not compressed and may be appended as it is.

    It says yes only where all the checks of `ottla.records.validate` would, and costs a fifth of them.
    """

    def __init__(self, max_message_bytes: int, before_max_ms: int, after_max_ms: int, needs_keys: bool) -> None:
        self.max_message_bytes = max_message_bytes
        self.before_max_ms = before_max_ms
        self.after_max_ms = after_max_ms
        self.needs_keys = needs_keys

    def count(self, batch: Buffer, now_ms: int, has_transactional_id: bool) -> int:
        """How many records it has, negative where it has a producer; 0 where something is not as usual, or wrong."""
        view = view_of(batch)
        end = view.nbytes
        if end < HEADER_SIZE or end > self.max_message_bytes or view.readonly:
            return 0
        data = octets(view)
        last_time = now_ms + self.after_max_ms if self.after_max_ms < MOST_TIME - now_ms else MOST_TIME
        count = count_plain(data, end, now_ms - self.before_max_ms, last_time, self.needs_keys)
        attributes = big_endian(data, ATTRIBUTES_AT, 2)
        if count == 0 or (attributes != 0 and (attributes != TRANSACTIONAL or not has_transactional_id)):
            return 0
        crc = processor_crc(view, ATTRIBUTES_AT)
        if crc < 0:
            crc = checksum.compute(view[ATTRIBUTES_AT:])
        if crc != big_endian(data, CRC_AT, 4) & 0xFFFFFFFF:
            return 0
        has_producer = attributes != 0 or big_endian(data, PRODUCER_ID_AT, 8) >= 0
        return -count if has_producer else count


def count_plain(data: bytes, end: int, first_time: int, last_time: int, needs_keys: bool) -> int:
    """The same without a look at the checksum and the attributes: records of the times allowed."""
    if big_endian(data, LENGTH_AT, 4) + PREFIX_SIZE != end or data[MAGIC_AT] != MAGIC:
        return 0
    count = big_endian(data, COUNT_AT, 4)
    base_timestamp = big_endian(data, BASE_TIMESTAMP_AT, 8)
    max_timestamp = big_endian(data, MAX_TIMESTAMP_AT, 8)
    if big_endian(data, 0, 8) != 0 or count < 1 or big_endian(data, LAST_OFFSET_DELTA_AT, 4) + 1 != count:
        return 0
    if base_timestamp < 0 or base_timestamp > MOST_USUAL or max_timestamp < 0 or max_timestamp > MOST_USUAL:
        return 0
    if max_timestamp > last_time or (big_endian(data, PRODUCER_ID_AT, 8) >= 0 > big_endian(data, BASE_SEQUENCE_AT, 4)):
        return 0
    least = MOST_TIME
    most = LEAST_TIME
    has_null_key = False
    position = HEADER_SIZE
    for _ in range(count):
        fields = parse_record(data, position, end)
        if fields.end < 0:
            return 0
        position = fields.end
        least = min(least, fields.timestamp_delta)
        most = max(most, fields.timestamp_delta)
        if fields.key_size < 0:
            has_null_key = True
    if position != end or most != max_timestamp - base_timestamp or least < -base_timestamp:
        return 0
    if base_timestamp + least < first_time or (has_null_key and needs_keys):
        return 0
    return count


def stamp_batches(batches: bytearray | memoryview, base_offset: int, leader_epoch: int) -> tuple[int, int, bool]:
    """Give batches that lie one behind the other their offsets and their epoch, in place.

    The offset behind them, the highest timestamp of all, and whether one of them has a producer.
    """
    view = memoryview(batches)
    if view.readonly:
        raise TypeError("batches that cannot be stamped")
    data = octets(view)
    end = view.nbytes
    position = 0
    next_offset = base_offset
    newest = LEAST_TIME
    has_producers = False
    while position < end:
        size = end - position
        if size >= HEADER_SIZE:
            size = big_endian(data, position + LENGTH_AT, 4) + PREFIX_SIZE
        if size < HEADER_SIZE or size > end - position:
            raise CorruptBatch(f"a batch of {size} bytes where {end - position} are left")
        put_offset_and_epoch(view, position, next_offset, leader_epoch)
        next_offset += big_endian(data, position + LAST_OFFSET_DELTA_AT, 4) + 1
        newest = max(newest, big_endian(data, position + MAX_TIMESTAMP_AT, 8))
        if big_endian(data, position + PRODUCER_ID_AT, 8) >= 0:
            has_producers = True
        position += size
    return next_offset, newest, has_producers


def index_batches(
    batches: Buffer,
    position: int,
    unindexed_bytes: int,
    interval_bytes: int,
    max_timestamp: int,
    max_timestamp_offset: int,
) -> tuple[int, int, int, list[tuple[int, int, int, int]]]:
    """Look through batches that were stamped and written at a position of a segment, for its indexes.

    `unindexed_bytes`: behind the last entry. The same for those behind them, the highest timestamp and its offset, and
    the entries to be made: last offset, position, highest timestamp so far and its offset.
    """
    view = memoryview(batches)
    data = octets(view)
    end = view.nbytes
    at = 0
    entries: list[tuple[int, int, int, int]] = []
    while at < end:
        last_offset = big_endian(data, at, 8) + big_endian(data, at + LAST_OFFSET_DELTA_AT, 4)
        timestamp = big_endian(data, at + MAX_TIMESTAMP_AT, 8)
        size = big_endian(data, at + LENGTH_AT, 4) + PREFIX_SIZE
        if timestamp > max_timestamp:
            max_timestamp = timestamp
            max_timestamp_offset = last_offset
        if unindexed_bytes > interval_bytes:
            entries.append((last_offset, position + at, max_timestamp, max_timestamp_offset))
            unindexed_bytes = 0
        unindexed_bytes += size
        at += size
    return unindexed_bytes, max_timestamp, max_timestamp_offset, entries


def decode_keys(area: Buffer, count: int) -> list[KeyEntry]:
    """What compaction looks at, for each record."""
    view = memoryview(area)
    data = octets(view)
    end = view.nbytes
    check_count(count, end)
    position = 0
    entries: list[KeyEntry] = []
    for index in range(count):
        fields = parse_record(data, position, end)
        if fields.end < 0:
            raise malformed(index, fields.end)
        position = fields.end
        key = data[fields.key_at : fields.key_at + fields.key_size] if fields.key_size >= 0 else None
        entries.append((fields.offset_delta, key, fields.value_size < 0))
    check_end(position, end, count)
    return entries


def retain_records(
    area: Buffer, count: int, keep: bytes, base_timestamp: int = 0, new_base_timestamp: int = 0
) -> tuple[bytearray, int, int]:
    """Only the records whose byte in `keep` is not 0; how many; and their highest timestamp.

    Timestamps stay: where the batch gets a new base timestamp, each delta moves by as much.
    """
    view = memoryview(area)
    data = octets(view)
    end = view.nbytes
    check_count(count, end)
    if len(keep) != count:
        raise ValueError(f"a decision for {len(keep)} records, the batch has {count}")
    out = bytearray()
    resize(out, end + 15 * count)  # a moved delta may take 10 bytes, and then the size 5
    target = writable(out)
    shift = wrapping_subtract(new_base_timestamp, base_timestamp)
    size = 0
    kept = 0
    most = LEAST_INT64
    position = 0
    for index in range(count):
        fields = parse_record(data, position, end)
        if fields.end < 0:
            raise malformed(index, fields.end)
        if keep[index]:
            if shift == 0:
                copy_range(target, size, data, position, fields.end - position)
                size += fields.end - position
            else:
                size = move_timestamp(target, size, data, position, fields.end, shift)
            kept += 1
            most = max(most, wrapping_add(base_timestamp, fields.timestamp_delta))
        position = fields.end
    check_end(position, end, count)
    resize(out, size)
    return out, kept, most


def move_timestamp(target: bytearray, size: int, data: bytes, position: int, end: int, shift: int) -> int:
    """Copy a checked record with its timestamp delta moved back by `shift`; the new size of `target`."""
    old_delta, position = read_varint(data, position, end)
    old_delta, rest = read_varlong(data, position + 1, end)
    delta = wrapping_subtract(old_delta, shift)
    body = 1 + varint_size(delta) + end - rest
    size = put_varint(target, size, body)
    target[size] = data[position]
    size = put_varint(target, size + 1, delta)
    copy_range(target, size, data, rest, end - rest)
    return size + end - rest


# Writing.


def varint_size(value: int) -> int:
    raw = value
    raw <<= 1
    if value < 0:
        raw = ~raw
    if raw < 0x80:
        return 1
    if raw < 0x4000:
        return 2
    size = 3
    raw >>= 21
    while raw:
        raw >>= 7
        size += 1
    return size


def put_varint(out: bytearray, position: int, value: int) -> int:
    """Write a signed number of any width; the position behind it."""
    raw = value
    raw <<= 1
    if value < 0:
        raw = ~raw
    while raw >= 0x80:
        out[position] = (raw & 0x7F) | 0x80
        raw >>= 7
        position += 1
    out[position] = raw
    return position + 1


def as_bytes(value: Buffer | None) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    return bytes(memoryview(value))  # not bytes(value): that would take a number for a size


def put_sized(out: bytearray, position: int, cell: Cell) -> int:
    """Write a key, a value or a name behind its size; the position behind it."""
    position = put_varint(out, position, cell.size)
    if cell.size <= 0:
        return position
    copy_range(out, position, cell.data, cell.at, cell.size)
    return position + cell.size


def encode_headers(headers: Iterable[tuple[str, Buffer | None]]) -> bytes:
    """The end of a record: the number of headers, and the headers."""
    parts: list[bytes | None] = []
    size = 5
    for name, value in headers:
        if not isinstance(name, str):
            raise TypeError(f"the name of a header is a str, not {type(name).__name__}")
        part: bytes | None = name.encode()
        parts.append(part)
        size += 5 + len(part or b"")
        part = as_bytes(value)
        parts.append(part)
        size += 5 + len(part or b"")
    out = bytearray()
    resize(out, size)
    target = writable(out)
    position = put_varint(target, 0, len(parts) // 2)
    for part in parts:
        position = put_sized(target, position, cell_of(part))
    return bytes(out[:position])


def holds_bytes(items: list[object]) -> bool:
    """Whether it holds nothing but bytes and None."""
    for index in range(len(items)):
        item = items[index]
        if item is not None and type(item) is not bytes:
            return False
    return True


class Rows:
    """Bytes as Arrow keeps them, row by row where they lie: every `step`th row from `start` on."""

    def __init__(
        self, data: Buffer, offsets: Buffer, validity: Buffer | None, start: int, count: int, is_wide: bool
    ) -> None:
        """The buffers of an array, and which of its rows. `is_wide`: whether its offsets have 64 bits.

        ValueError if the rows are not in the buffers.
        """
        data_view = memoryview(data)
        offsets_view = memoryview(offsets)
        self.has_nulls = validity is not None
        validity_view = memoryview(b"" if validity is None else validity)
        end = start + count
        offset_count = offsets_view.nbytes // (8 if is_wide else 4)
        if start < 0 or count < 0 or end >= offset_count or (self.has_nulls and end > 8 * validity_view.nbytes):
            raise ValueError(f"rows {start} to {end} are not in the array's buffers")
        self.views = (data_view, offsets_view, validity_view)
        self.data = octets(data_view)
        self.offsets = octets(offsets_view)
        self.validity = octets(validity_view)
        self.is_wide = is_wide
        self.start = start
        self.step = 1
        self.count = count
        self.check_offsets(data_view.nbytes)

    def check_offsets(self, data_bytes: int) -> None:
        position = 0
        for index in range(self.start, self.start + self.count + 1):
            next_position = read_offset(self.offsets, index, self.is_wide)
            if next_position < position:
                raise ValueError("the offsets of the array do not ascend")
            position = next_position
        if position > data_bytes:
            raise ValueError("the offsets of the array lead out of its data")

    def cell(self, index: int) -> Cell:
        row = self.start + index * self.step
        if self.has_nulls and not self.validity[row >> 3] >> (row & 7) & 1:
            return cell_of(None)
        position = read_offset(self.offsets, row, self.is_wide)
        return Cell(self.data, position, read_offset(self.offsets, row + 1, self.is_wide) - position)

    def part(self, start: int, step: int, count: int) -> Rows:
        rows = Rows.__new__(Rows)
        rows.views = self.views
        rows.data = self.data
        rows.offsets = self.offsets
        rows.validity = self.validity
        rows.has_nulls = self.has_nulls
        rows.is_wide = self.is_wide
        rows.start = self.start + start * self.step
        rows.step = self.step * step
        rows.count = count
        return rows

    def one(self, index: int) -> bytes | None:
        cell = self.cell(index)
        return cell.data[cell.at : cell.at + cell.size] if cell.size >= 0 else None

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[bytes | None]:
        return iter([self.one(index) for index in range(self.count)])

    def __getitem__(self, index: int | slice) -> Any:
        """The bytes of a row, or None; of a slice, rows."""
        chosen = range(self.count)[index]
        if isinstance(chosen, range):
            # The step of fewer than two rows may be any number.
            return self.part(chosen.start, chosen.step if len(chosen) > 1 else 1, len(chosen))
        return self.one(chosen)


class Cells:
    """The keys or the values of records that are to be written: a list, rows, or None, which are nulls."""

    def __init__(self, column: Iterable[Buffer | None] | Rows | None, count: int = -1) -> None:
        """`count`: how many there must be; negative: any number."""
        self.items: Any = None
        self.rows = None
        self.count = count
        if column is None:
            return
        if isinstance(column, Rows):
            self.rows = column
            self.count = len(column)
        else:
            items = column if type(column) is list else list(column)
            self.count = len(items)
            self.items = items
        if count >= 0 and self.count != count:
            raise ValueError(f"{count} values, but {self.count} keys")
        if self.items is not None and not holds_bytes(self.items):
            self.items = [as_bytes(one) for one in self.items]

    def cell(self, index: int) -> Cell:
        if self.items is not None:
            return cell_in(self.items, index)
        if self.rows is not None:
            return self.rows.cell(index)
        return cell_of(None)


def weigh(values: Column, keys: Column | None, more: list[int] | None, overhead_bytes: int) -> array[int]:
    """How large records are, from the first to each of them: overhead, value, key, and what `more` says of each."""
    value_cells = Cells(values)
    count = value_cells.count
    key_cells = Cells(keys, count)
    if more is not None and len(more) != count:
        raise ValueError(f"{count} values, but {len(more)} sizes")
    ends = array("q")
    resize_numbers(ends, count)
    target = int64s(ends)
    total = 0
    for index in range(count):
        total += overhead_bytes + max(value_cells.cell(index).size, 0) + max(key_cells.cell(index).size, 0)
        if more is not None:
            total += more[index]
        target[index] = total
    return ends


def cut(ends: array[int], indexes: range | list[int], limit_bytes: int) -> list[tuple[int, int]]:
    """Records in parts of at most `limit_bytes`, or of one record: where each part ends in `indexes`, and its size.

    `indexes` are the numbers of the records, `ends` their sizes as `weigh` gives them.
    """
    numbers = indexes if type(indexes) is list else None
    first = step = 0
    if isinstance(indexes, range):
        first, step = indexes.start, indexes.step
    weights = int64s(ends)
    record_count = len(ends)
    parts: list[tuple[int, int]] = []
    part_bytes = 0
    part_start = 0
    count = len(indexes)
    for position in range(count):
        index = first + position * step if numbers is None else numbers[position]
        if index < 0 or index >= record_count:
            raise IndexError(f"no record {index}: there are {record_count}")
        size = weights[index] - weights[index - 1] if index else weights[0]
        if position > part_start and part_bytes + size > limit_bytes:
            parts.append((position, part_bytes))
            part_start = position
            part_bytes = 0
        part_bytes += size
    if count:
        parts.append((count, part_bytes))
    return parts


NO_HEADERS = b"\0"


class AreaWriter:
    """An area as it grows, behind room left free for a header. `memory` is written over, if there is some."""

    def __init__(self, reserve_bytes: int, expected_bytes: int, memory: bytearray | None = None) -> None:
        self.out = bytearray() if memory is None else memory
        self.position = reserve_bytes
        self.capacity = reserve_bytes + expected_bytes
        resize(self.out, self.capacity)

    def put(self, timestamp_delta: int, offset_delta: int, key: Cell, value: Cell, headers: bytes) -> None:
        headers_size = len(headers)
        body = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + headers_size
        body += varint_size(key.size) + varint_size(value.size)
        body += (key.size if key.size > 0 else 0) + (value.size if value.size > 0 else 0)
        if body > MOST_RECORD_BYTES:
            raise ValueError(f"a record of {body} bytes is above the most of {MOST_RECORD_BYTES}")
        if self.position + body + 5 > self.capacity:
            self.grow(body + 5)
        target = writable(self.out)
        position = put_varint(target, self.position, body)
        target[position] = 0  # attributes: none are in use
        position = put_varint(target, position + 1, timestamp_delta)
        position = put_varint(target, position, offset_delta)
        position = put_sized(target, position, key)
        position = put_sized(target, position, value)
        copy(target, position, headers, headers_size)
        self.position = position + headers_size

    def grow(self, size: int) -> None:
        capacity = 2 * self.capacity + size
        resize(self.out, capacity)
        self.capacity = capacity

    def finish(self) -> bytearray:
        resize(self.out, self.position)
        return self.out


def expected_bytes(values: Cells) -> int:
    """A first guess at an area's size, from its first value."""
    return values.count * (max(values.cell(0).size, 0) + 16) if values.count else 0


def encode_values(
    values: Iterable[Buffer | None] | Rows, reserve_bytes: int = 0, memory: bytearray | None = None
) -> bytearray:
    """An area of records that have only a value: no key, no headers, the batch's timestamp."""
    cells = Cells(values)
    area = AreaWriter(reserve_bytes, expected_bytes(cells), memory)
    null = cell_of(None)
    for index in range(cells.count):
        area.put(0, index, null, cells.cell(index), NO_HEADERS)
    return area.finish()


def encode_columns(
    values: Iterable[Buffer | None] | Rows,
    keys: Iterable[Buffer | None] | Rows | None = None,
    timestamps: Iterable[int] | None = None,
    headers: Iterable[Iterable[tuple[str, Buffer | None]]] | None = None,
    offset_deltas: Iterable[int] | None = None,
    base_timestamp: int = 0,
    reserve_bytes: int = 0,
    memory: bytearray | None = None,
) -> bytearray:
    """An area from parallel sequences; offset deltas are 0, 1, 2, ... unless they are given."""
    value_cells = Cells(values)
    count = value_cells.count
    key_cells = Cells(keys, count)
    timestamp_items = None if timestamps is None else list(timestamps)
    header_items = None if headers is None else list(headers)
    delta_items = None if offset_deltas is None else list(offset_deltas)
    for others in (timestamp_items, header_items, delta_items):
        if others is not None and len(others) != count:
            raise ValueError(f"{count} values, but {len(others)} timestamps, headers or deltas")
    area = AreaWriter(reserve_bytes, expected_bytes(value_cells), memory)
    timestamp_delta = 0
    for index in range(count):
        if timestamp_items is not None:
            timestamp_delta = wrapping_subtract(int64(timestamp_items[index]), base_timestamp)
        offset_delta = index if delta_items is None else int64(delta_items[index])
        record_headers = NO_HEADERS if header_items is None else encode_headers(header_items[index])
        # Cells last: what comes before may call anything, and they point into the columns.
        area.put(timestamp_delta, offset_delta, key_cells.cell(index), value_cells.cell(index), record_headers)
    return area.finish()


def encode_records(records: Iterable[RecordTuple], base_timestamp: int, reserve_bytes: int = 0) -> bytearray:
    """An area from tuples of timestamp, key, value, headers."""
    items = records if type(records) is list else list(records)
    area = AreaWriter(reserve_bytes, len(items) * (len(items[0][2] or b"") + 16) if items else 0)
    for index in range(len(items)):
        timestamp, key, value, headers = items[index]
        timestamp_delta = wrapping_subtract(int64(timestamp), base_timestamp)
        record_headers = encode_headers(headers) if headers else NO_HEADERS
        key, value = as_bytes(key), as_bytes(value)
        area.put(timestamp_delta, index, cell_of(key), cell_of(value), record_headers)
    return area.finish()


# Columns.


class Binary(NamedTuple):
    """The three buffers of an Arrow binary (or string) array."""

    validity: memoryview | None  # one bit a row, least bit first; None when no row is null
    offsets: memoryview  # int32, one more than rows
    data: memoryview
    null_count: int


class Headers(NamedTuple):
    """An Arrow list<struct<key: string, value: binary>>, without nulls but in `values`."""

    offsets: memoryview  # int32, one more than rows
    count: int  # type: ignore[assignment]
    names: Binary
    values: Binary


class ColumnBuffers(NamedTuple):
    rows: int
    offsets: memoryview  # int64
    timestamps: memoryview  # int64
    keys: Binary
    values: Binary
    headers: Headers | None


class BinaryColumn:
    """A binary array as it grows. Rows are reserved first, then appended."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.rows = 0
        self.size = 0
        self.null_count = 0
        self.row_capacity = 0
        self.byte_capacity = 0
        self.validity = bytearray()
        self.offsets = array("i", [0])
        self.data = bytearray()
        self.find_memory()

    def find_memory(self) -> None:
        """After each resize: to ask where the memory is at each row would cost more than the row."""
        self.validity_at = writable(self.validity)
        self.offsets_at = int32s(self.offsets)
        self.data_at = writable(self.data)

    def check_room(self, size: int) -> None:
        if self.size + size > self.limit_bytes:
            raise ColumnsFull(f"a column of {self.size} bytes cannot take {size} more")

    def reserve(self, rows: int) -> None:
        if self.rows + rows > self.row_capacity:
            used = len(self.validity)
            capacity = max(self.rows + rows, 2 * self.row_capacity)
            resize_numbers(self.offsets, capacity + 1)
            self.find_memory()
            resize(self.validity, capacity // 8 + 1)
            self.find_memory()
            fill_ones(self.validity_at, used, len(self.validity))
            self.row_capacity = capacity

    def grow(self, size: int, expected: int) -> None:
        """Make room for `size` bytes more; `expected` are likely to come."""
        capacity = max(self.size + max(size, expected), 2 * self.byte_capacity)
        resize(self.data, capacity)
        self.find_memory()
        self.byte_capacity = capacity

    def append(self, data: bytes, start: int, size: int, expected: int) -> None:
        row = self.rows
        used = self.size
        if size >= 0:
            if used + size > self.byte_capacity:
                self.grow(size, expected)
            copy_range(self.data_at, used, data, start, size)
            used += size
            self.size = used
        else:
            self.validity_at[row >> 3] &= ~(1 << (row & 7)) & 0xFF
            self.null_count += 1
        row += 1
        self.rows = row
        self.offsets_at[row] = used

    def cut(self, rows: int) -> None:
        """Take back every row from `rows` on."""
        for row in range(rows, self.rows):
            bit = 1 << (row & 7)
            if not self.validity[row >> 3] & bit:
                self.validity[row >> 3] |= bit
                self.null_count -= 1
        self.rows = rows
        self.size = self.offsets[rows]

    def finish(self) -> Binary:
        resize_numbers(self.offsets, self.rows + 1)
        resize(self.validity, (self.rows + 7) // 8)
        resize(self.data, self.size)
        validity = memoryview(self.validity) if self.null_count else None
        return Binary(validity, memoryview(self.offsets), memoryview(self.data), self.null_count)


class Columns:
    """Records as columns, batch after batch, in buffers that Arrow takes as they are.

    pyarrow.Array.from_buffers wraps what finish() gives without a copy. A batch that is refused, because it
    is corrupt or would not fit, leaves the columns as they were.
    """

    def __init__(self, with_headers: bool = False, limit_bytes: int = MOST_COLUMN_BYTES) -> None:
        if limit_bytes > MOST_COLUMN_BYTES:
            raise ValueError(f"a column holds at most {MOST_COLUMN_BYTES} bytes")
        self.with_headers = with_headers
        self.limit_bytes = limit_bytes
        self._begin()

    def _begin(self) -> None:
        self.rows = 0
        self.capacity = 0
        self.offsets = array("q")
        self.timestamps = array("q")
        self.keys = BinaryColumn(self.limit_bytes)
        self.values = BinaryColumn(self.limit_bytes)
        if self.with_headers:
            self.header_offsets = array("i", [0])
            self.header_names = BinaryColumn(self.limit_bytes)
            self.header_values = BinaryColumn(self.limit_bytes)

    def append_batch(
        self,
        area: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        log_append_time: int | None = None,
        start_offset: int = LEAST_INT64,
    ) -> None:
        """Append the records from `start_offset` on; ColumnsFull when a column could pass its limit."""
        view = memoryview(area)
        end = view.nbytes
        check_count(count, end)
        self._reserve(count, end)
        first_row = self.rows
        try:
            self._fill(octets(view), end, count, base_offset, base_timestamp, log_append_time, start_offset)
        except BaseException:  # too little memory, too: the columns stay even
            self._cut(first_row)
            raise

    def _reserve(self, count: int, size: int) -> None:
        self.keys.check_room(size)
        self.values.check_room(size)
        self.keys.reserve(count)
        self.values.reserve(count)
        if self.with_headers:
            self.header_names.check_room(3 * size)  # a byte that is not UTF-8 becomes three that are
            self.header_values.check_room(size)
        if self.rows + count > self.capacity:
            capacity = max(self.rows + count, 2 * self.capacity)
            resize_numbers(self.offsets, capacity)
            resize_numbers(self.timestamps, capacity)
            if self.with_headers:
                resize_numbers(self.header_offsets, capacity + 1)
            self.capacity = capacity

    def _fill(
        self,
        data: bytes,
        end: int,
        count: int,
        base_offset: int,
        base_timestamp: int,
        log_append_time: int | None,
        start_offset: int,
    ) -> None:
        fixed_timestamp = log_append_time is not None
        timestamp = 0
        if log_append_time is not None:
            timestamp = int64(log_append_time)
        offsets = int64s(self.offsets)
        timestamps = int64s(self.timestamps)
        keys = self.keys
        values = self.values
        row = self.rows
        position = 0
        for index in range(count):
            fields = parse_record(data, position, end)
            if fields.end < 0:
                raise malformed(index, fields.end)
            position = fields.end
            offset = wrapping_add(base_offset, fields.offset_delta)
            if offset < start_offset:
                continue
            if not fixed_timestamp:
                timestamp = wrapping_add(base_timestamp, fields.timestamp_delta)
            offsets[row] = offset
            timestamps[row] = timestamp
            keys.append(data, fields.key_at, fields.key_size, end - position)
            values.append(data, fields.value_at, fields.value_size, end - position)
            row += 1
            if self.with_headers:
                self._append_headers(row, data, fields.headers_at, position, fields.header_count)
        check_end(position, end, count)
        self.rows = row

    def _append_headers(self, row: int, data: bytes, position: int, end: int, count: int) -> None:
        self.header_names.reserve(count)
        self.header_values.reserve(count)
        for _ in range(count):
            size, position = read_varint(data, position, end)
            name = data[position : position + size]
            if not name.isascii():
                name = name.decode("utf-8", "replace").encode()
            self.header_names.append(name, 0, len(name), 0)
            size, position = read_varint(data, position + size, end)
            self.header_values.append(data, position, size, 0)
            if size > 0:
                position += size
        int32s(self.header_offsets)[row] = self.header_names.rows

    def _cut(self, rows: int) -> None:
        self.rows = rows
        self.keys.cut(rows)
        self.values.cut(rows)
        if self.with_headers:
            header_rows = self.header_offsets[rows]
            self.header_names.cut(header_rows)
            self.header_values.cut(header_rows)

    def finish(self) -> ColumnBuffers:
        """The columns; and begin new ones."""
        resize_numbers(self.offsets, self.rows)
        resize_numbers(self.timestamps, self.rows)
        headers = None
        if self.with_headers:
            resize_numbers(self.header_offsets, self.rows + 1)
            count = self.header_names.rows
            names = self.header_names.finish()
            headers = Headers(memoryview(self.header_offsets), count, names, self.header_values.finish())
        offsets, timestamps = memoryview(self.offsets), memoryview(self.timestamps)
        keys, values = self.keys.finish(), self.values.finish()
        buffers = ColumnBuffers(self.rows, offsets, timestamps, keys, values, headers)
        self._begin()
        return buffers
