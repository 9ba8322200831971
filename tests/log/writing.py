"""Short ways to write to a log and to read it back, for the tests of this room."""

from collections.abc import Sequence
from typing import Any

from ottla.log.log import Appended, Log
from ottla.log.recovery import open_log
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import BatchHeader, check_batch, read_header
from ottla.records.build import ControlMarker, build_batch, build_marker
from ottla.records.read import Batch
from ottla.testing.files import SimulatedFiles

FOLDER = "data/topic-0"
SMALL = TopicConfig(internal_segment_bytes=4096, index_interval_bytes=256)
EVERYTHING = 1 << 62


def new_log(files: SimulatedFiles | None = None, config: TopicConfig = SMALL, **options: Any) -> Log:
    return open_log(files or SimulatedFiles(), FOLDER, config, now_ms=0, **options)


def header_of(batch: bytes | bytearray) -> BatchHeader:
    return read_header(batch)


def append(
    log: Log,
    values: Sequence[bytes] = (b"value",),
    *,
    epoch: int = 0,
    now_ms: int = 0,
    timestamp: int = 1000,
    **options: Any,
) -> Appended:
    """Append one batch of records as a leader."""
    return append_batch(log, build_batch(values, timestamp=timestamp, **options), epoch=epoch, now_ms=now_ms)


def append_batch(log: Log, batch: bytearray, *, epoch: int = 0, now_ms: int = 0, **options: Any) -> Appended:
    return log.append(batch, read_header(batch), epoch, now_ms, **options)


def append_marker(
    log: Log,
    producer_id: int,
    producer_epoch: int = 0,
    *,
    is_commit: bool,
    coordinator_epoch: int = 0,
    epoch: int = 0,
    timestamp: int = 1000,
) -> Appended:
    """End the transaction of a producer."""
    batch = build_marker(
        ControlMarker(is_commit, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp=timestamp,
    )
    return append_batch(log, batch, epoch=epoch)


def served_batches(
    log: Log, offset: int | None = None, bound: int = EVERYTHING, max_bytes: int = 1 << 20
) -> list[Batch]:
    """All that a reader gets from `offset` on (from the start if not given), each batch checked."""
    offset = log.log_start_offset if offset is None else offset
    batches: list[Batch] = []
    while offset < log.end_offset:
        found = log.read(offset, max_bytes, bound)
        if found is None:
            break
        data = memoryview(found.read())
        position = 0
        while position < len(data):
            if position and len(data) - position < 61:
                break
            if position and read_header(data, position).size > len(data) - position:
                break
            header = check_batch(data, position)
            batches.append(Batch(header, data[position : position + header.size]))
            position += header.size
        offset = batches[-1].header.next_offset
    return batches


def served_values(log: Log, offset: int | None = None) -> list[bytes | None]:
    return [record.value for batch in served_batches(log, offset) for record in batch.records()]


def served_offsets(log: Log, offset: int | None = None, bound: int = EVERYTHING) -> list[int]:
    return [record.offset for batch in served_batches(log, offset, bound) for record in batch.records()]
