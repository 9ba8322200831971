"""Partition folders for the command line to look at, written by the log itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ottla.log.files import DiskFiles
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.recovery import open_log
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import read_header
from ottla.records.build import ControlMarker, build_batch, build_marker

TIME = 1_700_000_000_000
TOPIC_ID = bytes(range(16))


def append(log: Log, batch: bytearray, *, leader_epoch: int = 0) -> int:
    return log.append(batch, read_header(batch), leader_epoch, TIME).base_offset


def write_small_partition(folder: Path) -> Path:
    """Three segments of two small batches each, of several leader epochs and codecs."""
    log = open_log(DiskFiles(), str(folder), TopicConfig(index_interval_bytes=0), now_ms=TIME)
    for number in range(6):
        if number and number % 2 == 0:
            log.roll(TIME)
        values = [b"a", b"b"][: 1 + number % 2]
        append(log, build_batch(values, timestamp=TIME + number), leader_epoch=(0, 0, 0, 2, 2, 5)[number])
    log.close(TIME)
    return folder


def write_data_folder(folder: Path) -> Path:
    """A data folder with one topic that has keys, headers, all codecs, producers and transactions.

    Its other partition has a folder and no records.
    """
    config = TopicConfig(internal_segment_bytes=2500, index_interval_bytes=500)
    manager = LogManager(DiskFiles(), str(folder))
    manager.open(lambda _topic: config, TIME)
    log = manager.create("orders", 0, config, TIME, TOPIC_ID)
    manager.create("orders", 1, config, TIME, TOPIC_ID).truncate_fully(0, TIME)
    for number, batch in enumerate(_orders()):
        append(log, batch, leader_epoch=number // 10)
    log.advance_high_watermark(log.end_offset)
    manager.close(TIME)
    return folder


def _orders() -> Iterator[bytearray]:
    for number in range(15):
        yield build_batch(
            [f"order {number}".encode(), b"\x00\xff" * 100, None],
            keys=[b"text", b"\xfe", None],
            headers=[[("trace", b"1"), ("none", None)], [], []],
            timestamp=TIME,
            timestamps=[TIME + number * 1000 + record for record in range(3)],
            codec=number % 5,
        )
    for producer_id in (7, 8, 9):
        yield build_batch(
            [b"x" * 100] * 2,
            timestamp=TIME + 20_000,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
    yield _marker(8, is_commit=False)
    yield _marker(7, is_commit=True)
    for number in range(10):
        yield build_batch(
            [b"x" * 300],
            timestamp=TIME + 30_000 + number,
            producer_id=11,
            producer_epoch=0,
            base_sequence=number,
        )
    yield _marker(9, is_commit=False)


def _marker(producer_id: int, *, is_commit: bool) -> bytearray:
    marker = ControlMarker(is_commit=is_commit, coordinator_epoch=3)
    return build_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=TIME + 25_000)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its time of change and its bytes."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
