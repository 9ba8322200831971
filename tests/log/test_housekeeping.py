"""Housekeeping: what is done when, in slices, with the slow part as jobs."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest

import ottla.log.housekeeping
from ottla.log.compaction import Cleanable, cleanable
from ottla.log.errors import StorageFailed
from ottla.log.housekeeping import (
    PRODUCERS_A_SLICE,
    REMOVAL_RETRY_MS,
    FoldersHousekeeping,
    Housekeeping,
    Slices,
)
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.producers import Producer
from ottla.log.retention import AT_ONCE
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import read_header
from ottla.records.build import build_batch
from ottla.testing.files import Effect, SimulatedFiles
from ottla.testing.slices import run_here


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


@pytest.fixture
def manager(files: SimulatedFiles) -> LogManager:
    manager = LogManager(files, "/data")
    manager.open(lambda _topic: TopicConfig(), now_ms=0)
    return manager


@pytest.fixture
def clock() -> Clock:
    return Clock()


def put(log: Log, *values: bytes, key: bytes | None = None, timestamp: int = 1000) -> None:
    for value in values:
        batch = build_batch([value], keys=[key], timestamp=timestamp)
        log.append(batch, read_header(batch), 0, timestamp)
    log.advance_high_watermark(log.end_offset)


def run_catching(slices: Slices) -> None:
    """As the broker will: a job's error goes back into the generator."""
    try:
        job = next(slices)
        while True:
            try:
                if job is not None:
                    job()
            except Exception as error:
                job = slices.throw(error)
            else:
                job = next(slices)
    except StopIteration:
        return


def test_sealed_segments_are_flushed_and_the_recovery_point_moves(manager: LogManager, clock: Clock) -> None:
    log = manager.create("t", 0, TopicConfig(), 0)
    put(log, b"a", b"b")
    run_here(Housekeeping(manager, clock).flush())
    assert log.recovery_point == 0  # only the active segment holds data: left to the page cache
    log.roll(0)
    run_here(Housekeeping(manager, clock).flush())
    assert log.recovery_point == 2


def test_flush_messages_and_flush_ms_are_obeyed(manager: LogManager, clock: Clock) -> None:
    by_count = manager.create("count", 0, TopicConfig(flush_messages=3), 0)
    by_time = manager.create("time", 0, TopicConfig(flush_ms=500), 0)
    keeping = Housekeeping(manager, clock)
    put(by_count, b"1", b"2")
    put(by_time, b"1")
    run_here(keeping.flush())
    assert (by_count.recovery_point, by_time.recovery_point) == (0, 0)
    put(by_count, b"3")
    clock.now_ms = 500
    run_here(keeping.flush())
    assert (by_count.recovery_point, by_time.recovery_point) == (3, 1)


def test_a_sync_that_fails_stops_the_log_and_no_other(manager: LogManager, files: SimulatedFiles, clock: Clock) -> None:
    bad, good = manager.create("bad", 0, TopicConfig(), 0), manager.create("good", 0, TopicConfig(), 0)
    for log in (bad, good):
        put(log, b"a")
        log.roll(0)
    files.arm(files.operation_count + 1, Effect.FAIL, errno.ENOSPC)
    run_catching(Housekeeping(manager, clock).flush())
    assert bad.failure is not None
    assert bad.recovery_point == 0
    assert good.recovery_point == 1
    with pytest.raises(StorageFailed):
        put(bad, b"b")
    put(good, b"b")


def test_everything_is_done_when_it_is_due_and_not_before(
    manager: LogManager, files: SimulatedFiles, clock: Clock
) -> None:
    log = manager.create("t", 0, TopicConfig(retention_ms=10_000, file_delete_delay_ms=5_000), 0)
    put(log, b"old", timestamp=1000)
    log.roll(0)
    keeping = Housekeeping(manager, clock, retention_interval_ms=60_000)
    clock.now_ms = 59_999
    run_here(keeping.run())
    assert log.log_start_offset == 0
    clock.now_ms = 60_000
    run_here(keeping.run())
    assert log.log_start_offset == 1
    assert f"{0:020d}.log.deleted" in files.sizes("/data/t-0")
    clock.now_ms = 66_000
    run_here(keeping.run())
    assert f"{0:020d}.log.deleted" not in files.sizes("/data/t-0")
    assert keeping.next_due_ms > 66_000


def test_the_dirtiest_log_is_compacted_and_the_checkpoint_follows(
    manager: LogManager, files: SimulatedFiles, clock: Clock
) -> None:
    config = TopicConfig(cleanup_policy=("compact",))
    log = manager.create("table", 0, config, 0)
    plain = manager.create("events", 0, TopicConfig(), 0)
    for each in (log, plain):
        put(each, b"1", b"2", b"3", key=b"k")
        each.roll(0)
    keeping = Housekeeping(manager, clock)
    run_here(keeping.flush())
    run_here(keeping.compact())
    assert [header.base_offset for _, header in log.segments[0].batches()] == [2]
    assert len(list(plain.segments[0].batches())) == 3
    assert manager.cleaner_offsets == {("table", 0): 3}
    assert files.read_all("/data/cleaner-offset-checkpoint") == b"0\n1\ntable 0 3\n"


def test_without_the_cleaner_nothing_is_compacted(manager: LogManager, clock: Clock) -> None:
    log = manager.create("table", 0, TopicConfig(cleanup_policy=("compact",)), 0)
    put(log, b"1", b"2", key=b"k")
    log.roll(0)
    log.flush(0)
    run_here(Housekeeping(manager, clock, compacts=False).compact())
    assert manager.cleaner_offsets == {}
    run_here(Housekeeping(manager, clock).compact())
    assert manager.cleaner_offsets == {("table", 0): 2}


def test_a_log_below_the_dirty_ratio_waits(manager: LogManager, clock: Clock) -> None:
    log = manager.create("table", 0, TopicConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.6), 0)
    put(log, b"1", b"2", key=b"k")
    log.roll(0)
    put(log, b"3", key=b"k")
    log.roll(0)
    log.flush(0)
    manager.cleaner_offsets["table", 0] = 2
    run_here(Housekeeping(manager, clock).compact())
    assert manager.cleaner_offsets["table", 0] == 2


def test_a_rotten_log_is_set_aside_with_the_reason_and_the_others_go_on(
    manager: LogManager, files: SimulatedFiles, clock: Clock
) -> None:
    config = TopicConfig(cleanup_policy=("compact",))
    logs = [manager.create(name, 0, config, 0) for name in ("rotten", "sound")]
    for log in logs:
        put(log, b"1", b"2", key=b"k")
        log.roll(0)
        log.flush(0)
    files.flip_bit(f"/data/rotten-0/{0:020d}.log", 65, 3)
    reported: dict[tuple[str, int], str] = {}
    keeping = Housekeeping(manager, clock, report_uncleanable=reported.__setitem__)
    run_here(keeping.compact())
    assert manager.cleaner_offsets == {("sound", 0): 2}
    assert reported == {("rotten", 0): logs[0].uncleanable}
    assert "checksum" in (logs[0].uncleanable or "")


def test_a_log_that_cannot_be_looked_at_is_set_aside_and_the_others_go_on(
    manager: LogManager, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [manager.create(name, 0, TopicConfig(cleanup_policy=("compact",)), 0) for name in ("missing", "sound")]
    for log in logs:
        put(log, b"1", b"2", key=b"k")
        log.roll(0)
        log.flush(0)

    def look(log: Log, first_dirty_offset: int, now_ms: int) -> Cleanable:
        if log is logs[0]:
            raise FileNotFoundError(errno.ENOENT, "a file is gone", log.folder)
        return cleanable(log, first_dirty_offset, now_ms)

    monkeypatch.setattr("ottla.log.housekeeping.cleanable", look)
    run_here(Housekeeping(manager, clock).compact())
    assert manager.cleaner_offsets == {("sound", 0): 2}
    assert "a file is gone" in (logs[0].uncleanable or "")


def compacted_with_fault(
    fault_at: int | None, effect: Effect = Effect.TEAR, error_number: int = errno.ENOSPC
) -> tuple[SimulatedFiles, Log, int, int]:
    """A round of compaction that may meet a full disk, and another: the log, and the operations of the first."""
    files = SimulatedFiles()
    manager = LogManager(files, "/data")
    manager.open(lambda _topic: TopicConfig(), now_ms=0)
    log = manager.create("table", 0, TopicConfig(cleanup_policy=("compact",)), 0)
    put(log, b"1", b"2", b"3", key=b"k")
    log.roll(0)
    log.flush(0)
    keeping = Housekeeping(manager, Clock())
    first = files.operation_count + 1
    if fault_at is not None:
        files.arm(first + fault_at, effect, error_number)
    run_catching(keeping.compact())
    last = files.operation_count
    if fault_at is not None and log.failure is None:
        assert not [name for name in files.sizes("/data/table-0") if name.endswith((".cleaned", ".swap"))]
        run_catching(keeping.compact())
    return files, log, first, last


def test_after_a_full_disk_a_log_is_compacted_the_next_time() -> None:
    files, _, first, last = compacted_with_fault(None)
    written = [each.number - first for each in files.trace if first <= each.number <= last and "cleaned" in each.path]
    writes = [number for number in written if files.trace[first + number - 1].kind in ("create", "write", "sync")]
    assert len(writes) >= 4
    for number in writes:
        _, log, _, _ = compacted_with_fault(number)
        assert (log.failure, log.uncleanable) == (None, None)
        assert [header.base_offset for _, header in log.segments[0].batches()] == [2]


@pytest.mark.parametrize(
    ("kind", "error_number"), [("sync folder", errno.EMFILE), ("rename", errno.ENOSPC)], ids=["files", "room"]
)
def test_where_files_or_room_were_missing_for_the_new_segment_it_is_compacted_the_next_time(
    kind: str, error_number: int
) -> None:
    files, _, first, last = compacted_with_fault(None)
    done = [each for each in files.trace if first <= each.number <= last and each.path.startswith("/data/table-0")]
    made_known = [each for each in done if each.path.endswith(".cleaned") or each.kind == "sync folder"]
    numbers = [each.number - first for each in made_known if each.kind == kind]
    assert numbers
    for number in numbers:
        files, log, _, _ = compacted_with_fault(number, Effect.FAIL, error_number)
        assert (log.failure, log.uncleanable) == (None, None)
        assert [header.base_offset for _, header in log.segments[0].batches()] == [2]
        put(log, b"goes on", key=b"other")
        files.kill()
        again = LogManager(files, "/data")
        again.open(lambda _topic: TopicConfig(cleanup_policy=("compact",)), 0)
        assert [header.base_offset for _, header in again.logs["table", 0].segments[0].batches()] == [2]


def everything_due(files: SimulatedFiles) -> tuple[Log, Housekeeping]:
    clock = Clock()
    manager = LogManager(files, "/data")
    manager.open(lambda _topic: TopicConfig(), now_ms=0)
    log = manager.create("events", 0, TopicConfig(retention_ms=1), 0)
    put(log, b"old")
    log.roll(0)
    keeping = Housekeeping(manager, clock)
    clock.now_ms = 600_000
    return log, keeping


def test_what_fails_does_not_keep_the_rest_from_being_done() -> None:
    files = SimulatedFiles()
    _, keeping = everything_due(files)
    started = files.operation_count
    run_catching(keeping.run())
    writes = [each for each in files.trace if each.number > started and each.kind == "write"]
    checkpoints = [each.number for each in writes if "offset-checkpoint" in each.path]
    assert len(checkpoints) == 2  # behind a flush, and by itself
    for number in checkpoints:
        files = SimulatedFiles()
        log, keeping = everything_due(files)
        files.arm(number, Effect.TEAR, errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            run_catching(keeping.run())
        assert log.log_start_offset == 1
        assert keeping.next_due_ms > keeping.clock_ms()


def test_deleted_partitions_are_unlinked_as_jobs(manager: LogManager, files: SimulatedFiles, clock: Clock) -> None:
    batch = build_batch([b"v"], timestamp=1000)
    manager.create("t", 0, TopicConfig(file_delete_delay_ms=10), 0).append(batch, read_header(batch), 0, 1000)
    manager.delete("t", 0, 0)
    clock.now_ms = 10
    jobs = [job for job in Housekeeping(manager, clock).remove() if job is not None]
    assert len(jobs) == 1
    jobs[0]()
    assert files.folders("/data") == []


def test_a_folder_that_cannot_be_removed_is_tried_again_and_harms_nobody(
    manager: LogManager, files: SimulatedFiles, clock: Clock
) -> None:
    put(manager.create("t", 0, TopicConfig(file_delete_delay_ms=0), 0), b"v")
    put(kept := manager.create("kept", 0, TopicConfig(), 0), b"v")
    manager.delete("t", 0, 0)
    keeping = Housekeeping(manager, clock)
    files.arm(files.operation_count + 1, Effect.FAIL, errno.EACCES)
    clock.now_ms = 1000
    with pytest.raises(StorageFailed, match="Permission"):
        run_catching(keeping.run())
    assert manager.failure is None
    put(kept, b"w")
    clock.now_ms = 2000
    run_catching(keeping.run())
    assert len(files.folders("/data")) == 2
    clock.now_ms += REMOVAL_RETRY_MS
    run_catching(keeping.run())
    assert files.folders("/data") == ["kept-0"]


def test_a_mistake_in_one_removal(manager: LogManager, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are done, and it is tried again."""
    for partition in range(3):
        put(manager.create("t", partition, TopicConfig(file_delete_delay_ms=0), 0), b"v")
        manager.delete("t", partition, 0)
    keeping, remove, mistakes = Housekeeping(manager, clock), manager.remove_folders, [ValueError("a mistake")]

    def failing(paths: list[str]) -> None:
        if mistakes:
            raise mistakes.pop()
        remove(paths)

    monkeypatch.setattr(manager, "remove_folders", failing)
    clock.now_ms = 1000
    with pytest.raises(ValueError, match="a mistake"):
        run_catching(keeping.run())
    assert len(manager.files.folders("/data")) == 1
    clock.now_ms += REMOVAL_RETRY_MS
    run_catching(keeping.run())
    assert manager.files.folders("/data") == []


def test_a_folder_that_somebody_else_has_removed_is_gone(
    manager: LogManager, files: SimulatedFiles, clock: Clock
) -> None:
    put(manager.create("t", 0, TopicConfig(file_delete_delay_ms=0), 0), b"v")
    manager.delete("t", 0, 0)
    (name,) = files.folders("/data")
    files.remove_tree(f"/data/{name}")
    clock.now_ms = 1000
    run_catching(Housekeeping(manager, clock).run())
    assert manager.failure is None


def test_silent_producers_are_forgotten(manager: LogManager, clock: Clock) -> None:
    log = manager.create("t", 0, TopicConfig(), 0)
    batch = build_batch([b"v"], timestamp=1000, producer_id=5, producer_epoch=0, base_sequence=0)
    log.append(batch, read_header(batch), 0, 1000)
    keeping = Housekeeping(manager, clock)
    clock.now_ms = 1000
    run_here(keeping.expire_producers())
    clock.now_ms = 86_400_999
    run_here(keeping.expire_producers())
    assert 5 in log.producers.by_id
    clock.now_ms = 86_401_000
    run_here(keeping.expire_producers())
    assert 5 not in log.producers.by_id


def test_very_many_producers_are_looked_at_in_slices(manager: LogManager, clock: Clock) -> None:
    for index in range(6):
        log = manager.create("t", index, TopicConfig(), 0)
        log.producers.restore((producer_id, Producer(0)) for producer_id in range(PRODUCERS_A_SLICE // 2))
    assert len(list(Housekeeping(manager, clock).expire_producers())) == 3


def test_a_batch_of_old_records_that_is_sent_again_is_known(manager: LogManager, clock: Clock) -> None:
    log = manager.create("t", 0, TopicConfig(), 0)
    keeping = Housekeeping(manager, clock)
    clock.now_ms = 1_800_000_000_000
    for is_again in (False, True):
        batch = build_batch([b"of 2017"], timestamp=1_500_000_000_000, producer_id=5, producer_epoch=0, base_sequence=0)
        assert log.append(batch, read_header(batch), 0, clock()).duplicate == is_again
        for _ in range(2):
            run_here(keeping.expire_producers())
            clock.now_ms += 600_000


def test_a_mistake_with_one_log_does_not_keep_the_others_from_retention(
    manager: LogManager, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def fail_first(log: Log, _now_ms: int) -> int:
        seen.append(log.folder)
        if len(seen) == 1:
            raise KeyError("a mistake of ours")
        return 0

    monkeypatch.setattr(ottla.log.housekeeping, "apply_retention", fail_first)
    for index in range(3):
        manager.create("t", index, TopicConfig(), clock())
    housekeeping = Housekeeping(manager, clock, retention_interval_ms=1000)
    clock.now_ms += 1000
    with pytest.raises(KeyError):
        run_here(housekeeping.run())
    assert len(seen) == 3
    assert housekeeping.next_due_ms > clock()  # and it is not tried without end


def busy_table(manager: LogManager, name: str, clock: Clock) -> Log:
    """A log that is dirty, on the disk, and never comes to rest."""
    log = manager.create(name, 0, TopicConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0), 0)
    grow(log, clock)
    return log


def grow(log: Log, clock: Clock) -> None:
    put(log, b"v", key=b"k", timestamp=clock())
    log.roll(clock())
    log.flush(clock())


@pytest.mark.parametrize("folders", [1, 2])
def test_a_log_that_is_always_dirty_keeps_nothing_else_from_being_done(
    files: SimulatedFiles, clock: Clock, folders: int
) -> None:
    managers = [LogManager(files, f"/data{number}") for number in range(folders)]
    for manager in managers:
        manager.open(lambda _topic: TopicConfig(), now_ms=0)
    busy = [busy_table(manager, f"table{number}", clock) for number, manager in enumerate(managers)]
    old = managers[-1].create("old", 0, TopicConfig(retention_ms=1), 0)
    keeping = FoldersHousekeeping([Housekeeping(manager, clock, retention_interval_ms=500) for manager in managers])
    clock.now_ms = 20_000
    slices = keeping.run()
    for number in range(2000):
        job = next(slices, Ellipsis)
        if job is Ellipsis:
            slices = keeping.run()
        elif job is not None:
            job()
        for log in busy:
            grow(log, clock)
        clock.now_ms += 10
        if number == 10:
            put(old, b"old", timestamp=clock())
        if old.log_start_offset:
            break
    assert old.log_start_offset == 1
    while next(slices, Ellipsis) is not Ellipsis:
        clock.now_ms += 10
        grow(busy[0], clock)
    assert all(manager.cleaner_offsets for manager in managers)  # none has waited for the others to be clean
    slices.close()


def test_very_many_segments_are_removed_some_at_a_time(manager: LogManager, clock: Clock) -> None:
    log = manager.create("t", 0, TopicConfig(retention_ms=1), 0)
    for number in range(5 * AT_ONCE + 3):
        put(log, b"%d" % number)
        log.roll(0)
    put(log, b"the last")
    clock.now_ms = 10_000
    starts = [0]
    for job in Housekeeping(manager, clock).retain():
        assert job is None
        starts.append(log.log_start_offset)
    assert starts[-1] == log.end_offset == 5 * AT_ONCE + 4
    assert max(after - before for before, after in pairwise(starts)) == AT_ONCE


def test_retention_of_a_log_waits_for_its_compaction_and_not_longer(manager: LogManager, clock: Clock) -> None:
    config = TopicConfig(cleanup_policy=("compact", "delete"), retention_ms=1000, min_cleanable_dirty_ratio=0.0)
    log = manager.create("table", 0, config, 0)
    for value in (b"1", b"2", b"3"):
        put(log, value, key=b"k", timestamp=clock())
        log.roll(0)
    log.flush(0)
    keeping = Housekeeping(manager, clock, retention_interval_ms=60_000)
    compaction = keeping.compact()
    next(compaction)
    clock.now_ms = 10_000
    run_here(keeping.retain())
    assert log.log_start_offset == 0
    run_here(compaction)
    assert (log.log_start_offset, manager.cleaner_offsets) == (3, {("table", 0): 3})
