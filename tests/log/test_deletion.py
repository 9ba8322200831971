"""A topic that is deleted while something works on its log, and made again under the same name."""

from __future__ import annotations

import gc
import os
import weakref
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.log.checkpoint import TopicPartition
from ottla.log.compaction import SLICE_BYTES, Compaction
from ottla.log.errors import StorageFailed
from ottla.log.files import DiskFiles
from ottla.log.housekeeping import Housekeeping
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.sync import SyncRound
from ottla.log.topic_config import TopicConfig
from ottla.records.build import build_batch
from ottla.testing.files import SimulatedFiles
from tests.log.committed_reader import committed_records
from tests.log.writing import append_batch

PARTITION = ("table", 0)
CONFIG = TopicConfig(
    internal_segment_bytes=500,
    index_interval_bytes=100,
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)
MOST_STEPS = 100


def write(log: Log, values: list[bytes]) -> None:
    for value in values:
        append_batch(log, build_batch([value], keys=[b"k"], timestamp=1000))
    log.roll(1000)
    log.advance_high_watermark(log.end_offset)
    log.flush(1000)


def values_of(log: Log) -> list[bytes | None]:
    return [record.value for record in committed_records(log, 0)]


def opened(files: SimulatedFiles) -> LogManager:
    manager = LogManager(files, "data")
    manager.open(lambda _topic: CONFIG, 1000)
    return manager


def never(partition: TopicPartition, reason: str) -> None:
    raise AssertionError(f"{partition}: {reason}")


def test_compaction_of_a_deleted_log_touches_nothing_of_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it had come to when the topic was deleted."""
    run = Compaction.run
    monkeypatch.setattr(Compaction, "run", lambda compaction, _bytes=SLICE_BYTES: run(compaction, 100))
    for deleted_at in range(MOST_STEPS):
        files = SimulatedFiles()
        files.make_folder("data")
        manager = opened(files)
        write(manager.create(*PARTITION, CONFIG, 1000), [b"old-%d" % number for number in range(20)])
        housekeeping = Housekeeping(manager, lambda: 2000, report_uncleanable=never)
        is_deleted = False
        for step, job in enumerate(housekeeping.compact()):
            if step == deleted_at:
                manager.delete(*PARTITION, now_ms=2000)
                write(manager.create(*PARTITION, CONFIG, 2000), [b"new-%d" % number for number in range(20)])
                is_deleted = True
            if job is not None:
                job()
        if not is_deleted:
            assert deleted_at > 5
            return
        log = manager.logs[PARTITION]
        assert values_of(log)[-1] == b"new-19"
        assert set(values_of(log)) <= {b"new-%d" % number for number in range(20)}
        files.kill()
        log = opened(files).logs[PARTITION]
        log.advance_high_watermark(log.end_offset)
        assert values_of(log)[-1] == b"new-19"
        assert log.end_offset == 20
    raise AssertionError("compaction has no end")


def test_a_deleted_log_takes_no_records_and_makes_no_files() -> None:
    files = SimulatedFiles()
    files.make_folder("data")
    manager = opened(files)
    log = manager.create(*PARTITION, CONFIG, 1000)
    append_batch(log, build_batch([b"old"], keys=[b"k"], timestamp=1000))
    log.roll(1000)
    log.segments.close()
    manager.delete(*PARTITION, now_ms=2000)
    write(manager.create(*PARTITION, CONFIG, 2000), [b"new"])
    before = files.sizes("data/table-0")
    with pytest.raises(StorageFailed, match="deleted"):
        log.flusher.begin()
    with pytest.raises(StorageFailed, match="deleted"):
        append_batch(log, build_batch([b"late"], keys=[b"k"], timestamp=1000))
    assert files.sizes("data/table-0") == before


def test_who_waits_for_the_disk_is_told_of_a_deletion() -> None:
    files = SimulatedFiles()
    files.make_folder("data")
    manager = opened(files)
    log = manager.create(*PARTITION, CONFIG, 1000)
    append_batch(log, build_batch([b"old"], keys=[b"k"], timestamp=1000))
    under_way = SyncRound([log])
    under_way.run()
    manager.delete(*PARTITION, now_ms=2000)
    under_way.end(2000)
    assert isinstance(under_way.results[log], StorageFailed)


def open_inodes() -> set[int]:
    found: set[int] = set()
    for path in list(Path("/dev/fd").iterdir()):
        with suppress(OSError):  # that of the folder itself
            found.add(os.fstat(int(path.name)).st_ino)
    return found


def test_a_deleted_log_gives_its_room_back_at_once(tmp_path: Path) -> None:
    """Without the collector, which never looks again at what has stayed for a while."""
    manager = LogManager(DiskFiles(), str(tmp_path))
    manager.open(lambda _topic: CONFIG, now_ms=0)
    log = manager.create(*PARTITION, CONFIG, 0)
    write(log, [b"1", b"2"])
    write(log, [b"3"])
    inodes = {path.stat().st_ino for path in Path(log.folder).glob("*.log")}
    assert len(inodes) == 3
    assert inodes & open_inodes()
    remembered = weakref.ref(log)
    gc.disable()
    try:
        manager.delete(*PARTITION, 0)
        assert not inodes & open_inodes()  # also while somebody still has it
        del log
        assert remembered() is None
    finally:
        gc.enable()
    manager.close(0)
