"""A disk that is full, and one that cannot sync: what the log refuses, and when it takes writes again."""

import errno
import functools
import os
from collections.abc import Callable

import pytest

from ottla.log.errors import StorageFailed
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.topic_config import TopicConfig
from ottla.records.build import build_batch
from ottla.testing.files import Effect, SimulatedFiles
from ottla.testing.loss import SYNCED_ONLY
from tests.log.expected import check_segments, epochs_of
from tests.log.writing import SMALL, append, append_batch, new_log, served_batches, served_values


def fill(files: SimulatedFiles, room_bytes: int) -> None:
    """Leave so much room on the disk, counting all that is there."""
    used = sum(sum(files.sizes(folder).values()) for folder in ("", "data", "data/topic-0") if files.exists(folder))
    files.capacity_bytes = used + room_bytes


@pytest.mark.parametrize("room_bytes", range(0, 400, 13))
def test_a_full_disk_refuses_and_later_takes_them_again(room_bytes: int) -> None:
    """Wherever the room ends: in a batch, an index, a snapshot, an epoch or between them."""
    files = SimulatedFiles()
    log = new_log(files, TopicConfig(internal_segment_bytes=300, index_interval_bytes=100))
    written = [b"before"]
    append(log, written)
    fill(files, room_bytes)
    refused = 0
    for number in range(12):
        value = b"value %d" % number
        epoch = number // 3
        try:
            append(log, [value], epoch=epoch)
        except StorageFailed:
            refused += 1
            if refused == 3:
                files.capacity_bytes = None
        else:
            written.append(value)
        assert served_values(log) == written
    assert refused == 3
    check_segments(log)
    log.flush(0)
    files.make_folder("data")
    files.sync_folder("")
    files.crash(SYNCED_ONLY)
    log = new_log(files, log.config, recovery_point=log.end_offset)
    assert served_values(log) == written
    assert log.epochs.entries == epochs_of(served_batches(log))


def test_a_refused_batch_may_be_sent_again() -> None:
    """Nothing of it was noted: the sequence is still due, and it is no duplicate."""
    files = SimulatedFiles()
    log = new_log(files)
    batch = build_batch([b"once"], timestamp=1, producer_id=7, producer_epoch=0, base_sequence=0)
    fill(files, 30)
    with pytest.raises(StorageFailed):
        append_batch(log, batch.copy())
    files.capacity_bytes = None
    appended = append_batch(log, batch.copy())
    assert not appended.duplicate
    assert append_batch(log, batch.copy()).duplicate
    assert served_values(log) == [b"once"]


def test_retention_makes_room_on_a_full_disk() -> None:
    files = SimulatedFiles()
    log = new_log(files, TopicConfig(internal_segment_bytes=200, file_delete_delay_ms=0))
    for number in range(6):
        append(log, [b"." * 60], epoch=number)
    log.advance_high_watermark(log.end_offset)
    fill(files, 0)
    log.remove_first(len(log.segments) - 1, 0)
    for path in log.segments.due_removals(0):
        files.remove(path)
    append(log, [b"fits again"], epoch=5)
    assert served_values(log)[-1] == b"fits again"


class FullFolders(SimulatedFiles):
    """A folder takes room for its names, too, and there is none for a longer one."""

    def rename(self, old: str, new: str) -> None:
        if len(new) > len(old):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), old)
        super().rename(old, new)


def test_retention_makes_room_where_there_is_none_for_a_longer_name() -> None:
    files = FullFolders()
    log = new_log(files, TopicConfig(internal_segment_bytes=200, index_interval_bytes=10))
    for number in range(6):
        append(log, [b"%d" % number * 60], epoch=number)
    log.advance_high_watermark(log.end_offset)
    being_read = log.read(0, 1000, log.end_offset)
    assert being_read is not None
    log.remove_first(2, 0)
    assert not [name for name in files.sizes("data/topic-0") if name.startswith((f"{0:020d}", f"{1:020d}"))]
    append(log, [b"goes on"], epoch=5)
    left = [b"2" * 60, b"3" * 60, b"4" * 60, b"5" * 60, b"goes on"]
    assert served_values(log) == left
    assert being_read.read()  # to its end
    files.kill()
    assert served_values(new_log(files)) == left


def test_a_topic_is_deleted_where_there_is_no_room_for_a_longer_name() -> None:
    """There is some in reserve."""
    files = FullFolders()
    has_reserve = False

    def make_room() -> bool:
        if has_reserve:
            files.rename = functools.partial(SimulatedFiles.rename, files)  # type: ignore[method-assign]
        return has_reserve

    manager = LogManager(files, "data", make_room=make_room)
    manager.open(lambda _topic: TopicConfig(), 0)
    append(manager.create("topic", 0, TopicConfig(), 0))
    with pytest.raises(OSError, match="No space"):
        manager.schedule_deletion("data/topic-0", 0)
    has_reserve = True
    manager.delete("topic", 0, 0)
    (name,) = files.folders("data")
    assert name.startswith("topic-0.")


@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_stops_the_log_until_it_is_opened_again(error_number: int) -> None:
    files = SimulatedFiles()
    files.make_folder("data")
    files.sync_folder("")
    log = new_log(files)
    append(log, [b"flushed"])
    log.flush(0)
    append(log, [b"in doubt"])
    files.arm(files.operation_count + 1, Effect.FAIL, error_number)
    with pytest.raises(StorageFailed):
        log.flush(0)
    assert log.recovery_point == 1
    # The pages may be gone though they can still be read, so no later sync may vouch for them.
    with pytest.raises(StorageFailed):
        log.flush(0)
    with pytest.raises(StorageFailed):
        append(log)
    with pytest.raises(StorageFailed):
        log.append_replicated(memoryview(build_batch([b"x"], timestamp=1, base_offset=2)), 0)
    assert served_values(log) == [b"flushed", b"in doubt"]
    files.crash(SYNCED_ONLY)
    log = new_log(files, recovery_point=1)
    assert served_values(log) == [b"flushed"]
    append(log, [b"after"])
    log.flush(0)
    assert served_values(log) == [b"flushed", b"after"]


@pytest.mark.parametrize("error_number", [errno.EIO, errno.EROFS])
def test_a_failed_write_stops_the_log(error_number: int) -> None:
    files = SimulatedFiles()
    log = new_log(files)
    append(log, [b"one"])
    files.arm(files.operation_count + 1, Effect.TEAR, error_number)
    with pytest.raises(StorageFailed):
        append(log, [b"two"])
    with pytest.raises(StorageFailed):
        append(log, [b"three"])
    assert served_values(log) == [b"one"]
    files.kill()
    log = new_log(files)
    append(log, [b"four"])
    assert served_values(log) == [b"one", b"four"]


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EMFILE])
def test_without_room_for_the_producers_all_is_on_the_disk_the_same(
    error_number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SimulatedFiles()
    files.make_folder("data")
    files.sync_folder("")
    log = new_log(files, TopicConfig(index_interval_bytes=10))
    written = [b"%d" % number for number in range(5)]
    for value in written:
        append(log, [value])
    flush = log.flusher.begin_resumable()
    assert flush is not None
    assert flush.snapshot

    def refuse(path: str, _data: bytes, *, durable: bool) -> None:
        assert not durable
        raise OSError(error_number, os.strerror(error_number), path)

    with monkeypatch.context() as patched:
        patched.setattr(files, "replace", refuse)
        flush.run()
        log.flusher.end(flush, 0)
    assert log.recovery_point == 5
    append(log, [b"goes on"])
    log.flush(0)
    files.crash(SYNCED_ONLY)
    assert served_values(new_log(files, log.config, recovery_point=6)) == [*written, b"goes on"]


def truncate(log: Log) -> None:
    log.truncate_to(1, 0)


def truncate_fully(log: Log) -> None:
    log.truncate_fully(9, 0)


def remove_first(log: Log) -> None:
    log.remove_first(1, 0)


@pytest.mark.parametrize("change", [truncate, truncate_fully, remove_first])
def test_an_error_half_way_through_several_files_stops_the_log(change: Callable[[Log], None]) -> None:
    written = [b"a", b"b", b"c"]
    stopped = 0
    for distance in range(1, 6):
        files = SimulatedFiles()
        log = new_log(files, SMALL)
        for epoch, value in enumerate(written):
            append(log, [value], epoch=epoch)
            log.roll(0)
        files.arm(files.operation_count + distance, Effect.FAIL)
        try:
            change(log)
        except StorageFailed:
            stopped += 1
            with pytest.raises(StorageFailed):
                append(log)
        files.kill()
        log = new_log(files)
        check_segments(log)
        append(log, [b"goes on"], epoch=9)
        served = served_values(log)
        assert served[-1] == b"goes on"
        assert all(value in written for value in served[:-1])
    assert stopped >= 2
