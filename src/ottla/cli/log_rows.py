"""What a log's files hold, row by row. A row is a plain dictionary: its names are those of `--json`.

Values are numbers, texts, None, lists of them, and bytes where the file has bytes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

from ottla.cli.record_text import iso_time
from ottla.log.aborted import unpack_entries
from ottla.log.checkpoint import CorruptCheckpoint, parse_partition_metadata
from ottla.log.earlier_batches import unpack_earlier_batches
from ottla.log.errors import CorruptLog
from ottla.log.index import OffsetIndex, TimeIndex
from ottla.log.inspect.batches import PlacedBatch, SegmentReader, control_types
from ottla.log.inspect.files import Kind, LogFile
from ottla.log.inspect.indexes import read_entries
from ottla.log.inspect.report import Progress, no_progress
from ottla.log.inspect.texts import epochs_in, offsets_in, parse_properties
from ottla.log.scan import Fault
from ottla.log.snapshot import unpack_snapshot
from ottla.records.batch import CorruptBatch
from ottla.records.codec import Record
from ottla.records.compression import NAMES as CODEC_NAMES
from ottla.wire.uuids import uuid_text

Row = dict[str, Any]
FAULT = "fault"
EVERY_OFFSET = range(1 << 63)
_BY_OFFSET = {Kind.OFFSET_INDEX, Kind.TIME_INDEX, Kind.ABORTED_INDEX}


def rows_of(
    file: LogFile, *, offsets: range | None, with_records: bool, progress: Progress = no_progress
) -> Iterator[Row]:
    """The rows of a file; with `offsets` only those that belong to them. What cannot be read is a row of type fault."""
    if file.kind is Kind.SEGMENT:
        yield from _segment_rows(file, EVERY_OFFSET if offsets is None else offsets, with_records, progress)
        return
    if offsets is not None and file.kind not in _BY_OFFSET:
        return
    try:
        for row in _ROWS[file.kind](file):
            if offsets is None or _touches(row, offsets):
                yield row
    except (CorruptLog, CorruptCheckpoint) as error:
        yield _fault(None, str(error))


def _touches(row: Row, offsets: range) -> bool:
    """A row has one offset, or a first and a last one."""
    first, last = (row["offset"],) * 2 if "offset" in row else (row["first_offset"], row["last_offset"])
    return bool(last >= offsets.start and first < offsets.stop)


def _fault(position: int | None, reason: str) -> Row:
    return {"type": FAULT, "position": position, "reason": reason}


def _segment_rows(file: LogFile, offsets: range, with_records: bool, progress: Progress) -> Iterator[Row]:
    for found in SegmentReader(file):
        if isinstance(found, Fault):
            yield _fault(found.position, found.reason)
            continue
        progress(file.path, found.header.size)
        if found.header.last_offset < offsets.start:
            continue
        if found.header.base_offset >= offsets.stop:
            return
        controls = None
        try:
            controls = control_types(found) if found.header.is_control else None
        except CorruptBatch as error:
            yield _fault(found.position, str(error))
        yield _batch_row(found, controls)
        if with_records:
            yield from _record_rows(found, offsets)


def _record_rows(found: PlacedBatch, offsets: range) -> Iterator[Row]:
    try:
        for record in found.records():
            if record.offset in offsets:
                yield _record_row(record)
    except CorruptBatch as error:
        yield _fault(found.position, str(error))


def _batch_row(found: PlacedBatch, controls: list[str] | None) -> Row:
    header = found.header
    return {
        "type": "batch",
        "position": found.position,
        "size_bytes": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.count,
        "leader_epoch": header.leader_epoch,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "max_time": iso_time(header.max_timestamp),
        "timestamp_type": "log_append" if header.is_log_append_time else "create",
        "codec": CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else str(header.codec),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "controls": controls,
        "delete_horizon_ms": header.delete_horizon_ms,
        "crc": header.crc,
    }


def _record_row(record: Record) -> Row:
    return {
        "type": "record",
        "offset": record.offset,
        "timestamp": record.timestamp,
        "time": iso_time(record.timestamp),
        "key": record.key,
        "value": record.value,
        "headers": [list(header) for header in record.headers],
    }


def _offset_index_rows(file: LogFile) -> Iterator[Row]:
    for relative_offset, position in read_entries(file.path.read_bytes(), OffsetIndex.entry):
        yield {"type": "index_entry", "offset": file.offset + relative_offset, "position": position}


def _time_index_rows(file: LogFile) -> Iterator[Row]:
    for timestamp, relative_offset in read_entries(file.path.read_bytes(), TimeIndex.entry):
        offset = file.offset + relative_offset
        yield {"type": "time_index_entry", "timestamp": timestamp, "time": iso_time(timestamp), "offset": offset}


def _aborted_rows(file: LogFile) -> Iterator[Row]:
    for entry in unpack_entries(file.path.read_bytes()):
        yield {"type": "aborted_transaction", **entry._asdict()}


def _snapshot_rows(file: LogFile) -> Iterator[Row]:
    for producer_id, producer in unpack_snapshot(file.path.read_bytes()):
        yield {
            "type": "producer",
            "producer_id": producer_id,
            "producer_epoch": producer.epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": producer.last_offset,
            "last_timestamp": producer.last_timestamp,
            "last_time": iso_time(producer.last_timestamp),
            "coordinator_epoch": producer.coordinator_epoch,
            "transaction_start": producer.transaction_start,
        }


def _earlier_batch_rows(file: LogFile) -> Iterator[Row]:
    for producer_id, epoch, batch in unpack_earlier_batches(file.path.read_bytes())[1]:
        yield {
            "type": "producer_batch",
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "first_sequence": batch.first_sequence,
            "last_sequence": batch.last_sequence,
            "base_offset": batch.base_offset,
            "last_offset": batch.last_offset,
        }


def _epoch_rows(file: LogFile) -> Iterator[Row]:
    for epoch, start_offset in epochs_in(file.path.read_bytes()):
        yield {"type": "leader_epoch", "epoch": epoch, "start_offset": start_offset}


def _checkpoint_rows(file: LogFile) -> Iterator[Row]:
    for (topic, partition), offset in offsets_in(file.path.read_bytes()).items():
        yield {"type": "checkpoint", "topic": topic, "partition": partition, "offset": offset}


def _metadata_rows(file: LogFile) -> Iterator[Row]:
    topic_id = parse_partition_metadata(file.path.read_bytes())
    yield {"type": "partition_metadata", "topic_id": uuid_text(topic_id), "uuid": str(uuid.UUID(bytes=topic_id))}


def _property_rows(file: LogFile) -> Iterator[Row]:
    for name, value in parse_properties(file.path.read_bytes()).items():
        yield {"type": "property", "name": name, "value": value}


_ROWS: dict[Kind, Callable[[LogFile], Iterator[Row]]] = {
    Kind.OFFSET_INDEX: _offset_index_rows,
    Kind.TIME_INDEX: _time_index_rows,
    Kind.ABORTED_INDEX: _aborted_rows,
    Kind.SNAPSHOT: _snapshot_rows,
    Kind.EARLIER_BATCHES: _earlier_batch_rows,
    Kind.LEADER_EPOCHS: _epoch_rows,
    Kind.OFFSETS: _checkpoint_rows,
    Kind.PARTITION_METADATA: _metadata_rows,
    Kind.META_PROPERTIES: _property_rows,
}
