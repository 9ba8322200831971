"""A process that starts again after a sync that failed: what it finds must last, though the kernel has given it up."""

from __future__ import annotations

import errno

import pytest

from ottla.log.errors import StorageFailed
from ottla.log.failed_sync import MARK
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.recovery import open_log
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import read_header
from ottla.records.build import build_batch
from ottla.records.read import read_records
from ottla.testing.files import Effect, SimulatedFiles
from ottla.testing.loss import SYNCED_ONLY

FOLDER = "/data/t-0"


def opened(files: SimulatedFiles, recovery_point: int = 0) -> Log:
    return open_log(files, FOLDER, TopicConfig(), now_ms=0, recovery_point=recovery_point)


def values(log: Log) -> list[bytes | None]:
    found = log.read(0, 1 << 20, log.end_offset)
    return [] if found is None else [record.value for record in read_records(found.read())]


def append(log: Log, value: bytes) -> None:
    batch = build_batch([value], timestamp=1)
    log.append(batch, read_header(batch), leader_epoch=0, now_ms=1)


def failed(files: SimulatedFiles) -> None:
    """A log with two records on the disk, and a third whose sync has failed; the process is killed then."""
    files.make_folder("/data")
    files.sync_folder("/")
    log = opened(files)
    append(log, b"one")
    log.flush(1)
    append(log, b"two")
    log.flush(1)
    append(log, b"three")
    files.arm(files.operation_count + 1, Effect.FAIL, errno.EIO)
    with pytest.raises(StorageFailed):
        log.flush(1)
    files.kill()


@pytest.mark.parametrize("recovery_point", [0, 1, 2])
def test_what_is_acknowledged_after_the_next_start_is_on_the_disk(recovery_point: int) -> None:
    files = SimulatedFiles()
    failed(files)
    log = opened(files, recovery_point)
    assert values(log) == [b"one", b"two", b"three"]
    log.flush(2)
    files.crash(SYNCED_ONLY)
    assert values(opened(files, 3)) == [b"one", b"two", b"three"]
    assert MARK not in files.sizes(FOLDER)


def test_a_crash_at_any_moment_of_writing_again_loses_nothing_that_was_synced() -> None:
    for number in range(1, 100):
        files = SimulatedFiles()
        failed(files)
        before = files.operation_count
        files.arm(before + number, Effect.TEAR, errno.EIO)
        try:
            opened(files)
        except OSError:
            files.crash(SYNCED_ONLY)
            assert values(opened(files))[:2] == [b"one", b"two"]
        else:
            if files.operation_count < before + number:
                return
    pytest.fail("opening takes more operations than that")


def test_no_room_is_needed_to_write_it_again() -> None:
    files = SimulatedFiles()
    failed(files)
    files.capacity_bytes = files.used_bytes
    log = opened(files, 2)
    assert values(log) == [b"one", b"two", b"three"]
    log.flush(2)
    files.crash(SYNCED_ONLY)
    assert values(opened(files, 3)) == [b"one", b"two", b"three"]


def test_on_a_full_disk_the_mark_takes_what_is_in_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    files = SimulatedFiles()
    has_room = False

    def make_room() -> bool:
        nonlocal has_room
        has_room = True
        return True

    manager = LogManager(files, "/data", make_room=make_room)
    manager.open(lambda _topic: TopicConfig(), 0)
    log = manager.create("t", 0, TopicConfig(), 0)
    append(log, b"one")
    replace = files.replace

    def with_room(path: str, data: bytes, *, durable: bool = True) -> None:
        if not has_room:
            raise OSError(errno.ENOSPC, "No space left", path)
        replace(path, data, durable=durable)

    monkeypatch.setattr(files, "replace", with_room)
    files.arm(files.operation_count + 1, Effect.FAIL, errno.ENOSPC)
    with pytest.raises(StorageFailed):
        log.flush(1)
    assert MARK in files.sizes(FOLDER)
