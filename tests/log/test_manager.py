"""The data folder: opening, closing, checkpoints, partitions that come and go."""

from __future__ import annotations

import errno
import functools
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.log.checkpoint import CLEANER_OFFSETS, RECOVERY_POINTS
from ottla.log.errors import StorageFailed
from ottla.log.files import DiskFiles
from ottla.log.log import Log
from ottla.log.manager import CHECKPOINTS, CLEAN_SHUTDOWN, LogManager
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import read_header
from ottla.records.build import build_batch
from ottla.testing.files import Effect, SimulatedFiles
from ottla.testing.loss import SYNCED_ONLY

CONFIG = TopicConfig(internal_segment_bytes=500, file_delete_delay_ms=1000)


def opened(files: SimulatedFiles | DiskFiles, folder: str = "/data") -> LogManager:
    manager = LogManager(files, folder)
    manager.open(lambda _topic: CONFIG, now_ms=0)
    return manager


def put(log: Log, count: int = 1) -> None:
    for _ in range(count):
        batch = build_batch([b"v" * 50], timestamp=1000)
        log.append(batch, read_header(batch), 0, 1000)


def test_logs_are_found_again_after_a_clean_end_without_reading_them() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    put(manager.create("orders", 0, CONFIG, 0), 10)
    put(manager.create("orders", 1, CONFIG, 0), 3)
    put(manager.create("with-dash", 12, CONFIG, 0), 1)
    manager.close(2000)
    again = opened(files)
    assert {partition: log.end_offset for partition, log in again.logs.items()} == {
        ("orders", 0): 10,
        ("orders", 1): 3,
        ("with-dash", 12): 1,
    }
    assert again.recovered == {}


def test_a_file_is_no_partition_whatever_its_name(tmp_path: Path) -> None:
    for files, folder in ((SimulatedFiles(), "/data"), (DiskFiles(), str(tmp_path))):
        manager = opened(files, folder)
        put(manager.create("orders", 0, CONFIG, 0), 10)
        manager.close(2000)
        for name in ("orders-1", "orders-2-delete"):
            files.replace(f"{folder}/{name}", b"of somebody else")
        again = opened(files, folder)
        assert list(again.logs) == [("orders", 0)]
        assert again.due_folders(10_000) == []
        again.close(3000)


def test_after_a_kill_they_are_scanned_and_nothing_is_lost() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    put(manager.create("orders", 0, CONFIG, 0), 10)
    files.kill()
    again = opened(files)
    assert again.logs["orders", 0].end_offset == 10
    assert again.recovered["orders", 0].scanned_bytes > 0
    assert again.recovered["orders", 0].faults == []


def test_the_clean_mark_is_gone_before_anything_is_opened() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    put(manager.create("orders", 0, CONFIG, 0))
    manager.close(0)
    assert files.exists(f"/data/{CLEAN_SHUTDOWN}")
    opened(files)
    assert not files.exists(f"/data/{CLEAN_SHUTDOWN}")


def test_a_log_that_failed_leaves_no_clean_mark() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    put(manager.create("orders", 0, CONFIG, 0))
    manager.logs["orders", 0].failure = "the disk is broken"
    manager.close(0)
    assert not files.exists(f"/data/{CLEAN_SHUTDOWN}")


def test_high_watermarks_and_log_starts_are_kept() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    log = manager.create("orders", 0, CONFIG, 0)
    put(log, 8)
    log.advance_high_watermark(6)
    log.advance_log_start(5)
    manager.close(0)
    again = opened(files).logs["orders", 0]
    assert (again.log_start_offset, again.high_watermark, again.end_offset) == (5, 6, 8)


def test_the_cleaner_offset_on_disk_is_lowered_before_a_truncation() -> None:
    """Or what is written there next would count as compacted, and old values of its keys would come to light."""
    files = SimulatedFiles()
    manager = opened(files)
    log = manager.create("orders", 0, CONFIG, 0)
    put(log, 10)
    manager.cleaner_offsets["orders", 0] = 8
    manager.write_checkpoint(CLEANER_OFFSETS)
    log.truncate_to(5, 0)  # all of it behind the recovery point, which need not change
    put(log, 5)
    files.kill()
    assert opened(files).cleaner_offsets == {("orders", 0): 5}


def test_a_cleaner_offset_behind_the_end_of_its_log_is_lowered_for_good() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    put(manager.create("orders", 0, CONFIG, 0), 5)
    manager.cleaner_offsets["orders", 0] = 8
    manager.write_checkpoint(CLEANER_OFFSETS)
    files.kill()
    again = opened(files)
    put(again.logs["orders", 0], 5)
    files.kill()
    assert opened(files).cleaner_offsets == {("orders", 0): 5}


def test_the_recovery_point_on_disk_is_lowered_before_a_truncation() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    log = manager.create("orders", 0, CONFIG, 0)
    put(log, 20)
    log.flush(0)
    for name in CHECKPOINTS:
        manager.write_checkpoint(name)
    log.truncate_to(5, 0)
    text = files.read_all("/data/recovery-point-offset-checkpoint")
    assert text == b"0\n1\norders 0 5\n"


def test_a_checkpoint_in_slices_does_not_undo_a_truncation_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.log.manager.CHECKPOINTED_A_SLICE", 1)
    files = SimulatedFiles()
    manager = opened(files)
    logs = [manager.create("orders", index, CONFIG, 0) for index in range(3)]
    for log in logs:
        put(log, 20)
        log.flush(0)
    *slices, job = manager.checkpoint_in_slices(RECOVERY_POINTS)
    assert slices == [None] * 3
    assert job is not None
    job()
    assert files.read_all(f"/data/{RECOVERY_POINTS}") == b"0\n3\norders 0 20\norders 1 20\norders 2 20\n"
    gathering = manager.checkpoint_in_slices(RECOVERY_POINTS)
    next(gathering)
    logs[0].truncate_to(5, 0)
    *_, job = gathering
    assert job is not None
    job()
    assert files.read_all(f"/data/{RECOVERY_POINTS}") == b"0\n3\norders 0 5\norders 1 20\norders 2 20\n"


def test_a_checkpoint_that_cannot_be_read_costs_a_scan_and_nothing_else() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    put(manager.create("orders", 0, CONFIG, 0), 10)
    manager.logs["orders", 0].advance_high_watermark(10)
    manager.close(0)
    files.replace("/data/recovery-point-offset-checkpoint", b"\xff\xfe")
    files.replace("/data/replication-offset-checkpoint", b"1\n0\n")
    again = opened(files)
    assert again.logs["orders", 0].end_offset == 10
    assert set(again.unreadable) == {"recovery-point-offset-checkpoint", "replication-offset-checkpoint"}


def test_a_deleted_partition_is_out_at_once_and_its_files_later() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    put(manager.create("orders", 0, CONFIG, 0))
    manager.delete("orders", 0, now_ms=0)
    assert manager.logs == {}
    assert manager.due_folders(999) == []
    (folder,) = manager.due_folders(1000)
    manager.remove_folders([folder])
    assert files.folders("/data") == []
    manager.create("orders", 0, CONFIG, 0)
    assert manager.logs["orders", 0].end_offset == 0


def test_a_deletion_that_was_cut_short_is_finished_after_opening() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    put(manager.create("orders", 0, CONFIG, 0))
    manager.delete("orders", 0, now_ms=0)
    files.kill()
    again = opened(files)
    assert again.logs == {}
    assert len(again.due_folders(0)) == 1


def test_the_longest_topic_name_can_be_deleted(tmp_path: Path) -> None:
    manager = opened(DiskFiles(), str(tmp_path))
    topic = "t" * 249
    put(manager.create(topic, 0, CONFIG, 0))
    manager.delete(topic, 0, 0)
    assert max(len(entry.name) for entry in tmp_path.iterdir()) == 255


@pytest.mark.parametrize("topic", ["", "../up", "a/b", "a b", "t" * 250, "\x00"])
def test_a_name_that_is_no_topic_never_becomes_a_path(topic: str, tmp_path: Path) -> None:
    manager = opened(DiskFiles(), str(tmp_path / "data"))
    with pytest.raises(ValueError, match="cannot be the name"):
        manager.create(topic, 0, CONFIG, 0)
    assert {entry.name for entry in tmp_path.rglob("*")} == {"data", ".lock"}


def test_a_partition_is_made_once() -> None:
    manager = opened(SimulatedFiles())
    manager.create("orders", 0, CONFIG, 0)
    with pytest.raises(ValueError, match="here already"):
        manager.create("orders", 0, CONFIG, 0)


def test_without_records_nothing_is_on_the_disk() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    before = files.operation_count
    logs = [manager.create("orders", index, CONFIG, 0, bytes(16)) for index in range(50)]
    manager.create("orders-again", 0, CONFIG, 0)
    assert logs[0].read(0, 100, 0) is None
    logs[1].truncate_to(0, 0)
    logs[2].flush(0)
    manager.delete("orders-again", 0, 0)
    assert not manager.has_deletions_to_sync
    assert files.operation_count == before
    put(logs[7])
    manager.close(0)
    assert files.folders("/data") == ["orders-7"]
    assert opened(files).logs.keys() == {("orders", 7)}


def test_the_first_record_finds_a_folder_that_an_earlier_try_has_left() -> None:
    """Whatever failed: the folder, the id in it, the file or the record."""
    files = SimulatedFiles()
    put(opened(files).create("orders", 0, CONFIG, 0, bytes(16)))
    operations = [operation for operation in files.trace if "orders-0" in operation.path]
    assert [operation.kind for operation in operations] == [
        "make folder",
        "create",
        "write",
        "truncate",
        "create",
        "write",
    ]
    for operation in operations[:-1]:
        files = SimulatedFiles()
        log = opened(files).create("orders", 0, CONFIG, 0, bytes(16))
        files.arm(operation.number, Effect.TEAR, errno.ENOSPC)
        with pytest.raises(StorageFailed):
            put(log)
        put(log)
        files.kill()
        again = opened(files)
        assert again.logs["orders", 0].end_offset == 1
        assert again.topic_id("orders", 0) == bytes(16)


def test_a_folder_that_could_not_be_deleted_is_not_taken_for_the_next_of_its_name() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    put(manager.create("orders", 0, CONFIG, 0))
    files.arm(files.operation_count + 1, Effect.FAIL)
    with pytest.raises(OSError, match="Input/output"):
        manager.delete("orders", 0, 0)
    assert manager.create("orders", 0, CONFIG, 0).end_offset == 0
    files.crash(SYNCED_ONLY)
    assert opened(files).logs == {}


def test_who_still_reads_a_deleted_log_touches_nothing_of_the_next_of_its_name() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    put(manager.create("orders", 0, CONFIG, 0), 10)
    manager.close(0)
    manager = opened(files)
    deleted = manager.logs["orders", 0]  # of several segments, none of them open
    manager.delete("orders", 0, 0)
    put(manager.create("orders", 0, CONFIG, 0))
    for segment in deleted.segments:
        with pytest.raises(FileNotFoundError):
            segment.position_of(segment.base_offset)
    assert [name for name in files.sizes("/data/orders-0") if name.endswith(".log")] == [f"{0:020d}.log"]


def with_checkpoints_of_before(files: SimulatedFiles) -> LogManager:
    """A partition that begins at 8, is on the disk and compacted up to 10, as the checkpoints know."""
    manager = opened(files)
    log = manager.create("orders", 0, CONFIG, 0)
    put(log, 10)
    log.advance_high_watermark(10)
    log.advance_log_start(8)
    log.flush(0)
    manager.cleaner_offsets["orders", 0] = 10
    for name in CHECKPOINTS:
        manager.write_checkpoint(name)
    return manager


def check_all_is_new(files: SimulatedFiles) -> None:
    again = opened(files)
    log = again.logs["orders", 0]
    assert (log.log_start_offset, log.end_offset, log.recovery_point) == (0, 3, 0)
    assert again.cleaner_offsets == {}


def test_what_checkpoints_tell_of_a_deleted_partition_is_not_for_the_next_of_its_name() -> None:
    files = SimulatedFiles()
    manager = with_checkpoints_of_before(files)
    manager.delete("orders", 0, 0)
    manager.sync_deletions()
    put(manager.create("orders", 0, CONFIG, 0), 3)
    manager.abandon()
    check_all_is_new(files)


def test_nor_is_what_they_tell_of_one_that_went_before_the_last_start() -> None:
    files = SimulatedFiles()
    manager = with_checkpoints_of_before(files)
    manager.delete("orders", 0, 0)
    manager.sync_deletions()
    manager.abandon()
    manager = opened(files)
    put(manager.create("orders", 0, CONFIG, 0), 3)
    manager.abandon()
    check_all_is_new(files)


def test_without_a_place_to_write_that_the_first_record_is_refused() -> None:
    files = SimulatedFiles()
    manager = with_checkpoints_of_before(files)
    manager.delete("orders", 0, 0)
    log = manager.create("orders", 0, CONFIG, 0)
    files.arm(files.operation_count + 1, Effect.FAIL, errno.ENOSPC)
    with pytest.raises(StorageFailed):
        put(log)
    put(log, 3)
    manager.abandon()
    check_all_is_new(files)


def test_deletions_are_synced_once_for_all() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    for index in range(3):
        put(manager.create("orders", index, CONFIG, 0))
        manager.logs["orders", index].flush(0)
    before = files.operation_count
    for index in range(3):
        manager.delete("orders", index, 0)
    manager.sync_deletions()
    assert files.operation_count == before + 4
    files.crash(SYNCED_ONLY)
    assert opened(files).logs == {}


def test_logs_that_nobody_wrote_to_are_closed_without_a_word() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    for index in range(3):
        put(manager.create("orders", index, CONFIG, 0), 5 * index + 1)
    manager.close(0)
    again = opened(files)
    before = files.operation_count
    again.close(0)
    assert not [each for each in list(files.trace)[before:] if "orders" in each.path]
    assert [log.end_offset for log in opened(files).logs.values()] == [1, 6, 11]


def test_the_topic_id_is_kept_in_the_folder() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    topic_id = bytes(range(16))
    put(manager.create("orders", 0, CONFIG, 0, topic_id))
    put(manager.create("orders", 1, CONFIG, 0))
    manager.close(0)
    again = opened(files)
    assert again.topic_id("orders", 0) == topic_id
    assert again.topic_id("orders", 1) is None
    assert files.read_all("/data/orders-0/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"


def test_two_owners_never_share_a_folder(tmp_path: Path) -> None:
    manager = opened(DiskFiles(), str(tmp_path))
    with pytest.raises(OSError):
        opened(DiskFiles(), str(tmp_path))
    manager.close(0)
    opened(DiskFiles(), str(tmp_path)).close(0)


def test_checkpoints_that_kafka_has_made_and_not_filled_are_fine() -> None:
    files = SimulatedFiles()
    manager = opened(files)
    put(manager.create("orders", 0, CONFIG, 0), 10)
    manager.close(0)
    files.replace("/data/cleaner-offset-checkpoint", b"")
    assert opened(files).unreadable == {}


def test_a_stop_is_not_clean_where_there_was_no_descriptor_for_a_sync() -> None:
    """A loss of power then leaves what nobody may trust."""

    def closed(fault_at: int | None) -> SimulatedFiles:
        files = SimulatedFiles()
        manager = opened(files)
        put(manager.create("orders", 0, CONFIG, 0), 10)
        if fault_at is not None:
            files.arm(fault_at, Effect.FAIL, errno.EMFILE)
        manager.close(0)
        return files

    files = closed(None)
    assert files.exists(f"/data/{CLEAN_SHUTDOWN}")
    syncs = [each.number for each in files.trace if "sync" in each.kind and each.path.startswith("/data/orders-0")]
    assert len(syncs) >= 4
    for number in syncs:
        files = closed(number)
        assert not files.exists(f"/data/{CLEAN_SHUTDOWN}")
        assert opened(files).logs["orders", 0].end_offset == 10


def test_no_thread_and_no_mistake_make_a_sync_that_was_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    def mistake() -> None:
        raise ValueError("a mistake")

    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    jobs: list[Callable[[], None]] = [mistake, *[functools.partial(done.append, number) for number in range(5)]]
    errors = DiskFiles().run_together(jobs)
    assert list(errors) == [0]
    assert "a mistake" in str(errors[0])
    assert sorted(done) == [0, 1, 2, 3, 4]
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    assert list(DiskFiles().run_together(jobs)) == [0]
    assert len(done) == 10
