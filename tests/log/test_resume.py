"""Recovery that begins in the midst of a segment, and when it may not."""

from collections.abc import Callable

import pytest

from ottla.log.housekeeping import Housekeeping
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.recovery import Recovered
from ottla.log.segment import INDEX, TIME_INDEX
from ottla.testing.files import SimulatedFiles
from ottla.testing.loss import SYNCED_ONLY
from ottla.testing.slices import run_here
from tests.log.expected import check_segments
from tests.log.writing import FOLDER, SMALL, append, append_marker, new_log, served_offsets

RESUMED, END = 21, 32


def flush_resumably(log: Log) -> None:
    flush = log.flusher.begin_resumable()
    assert flush is not None
    flush.run()
    log.flusher.end(flush, 0)


def filled(files: SimulatedFiles) -> Log:
    """Two epochs, an aborted transaction and the batches of a producer, on both sides of the place to resume at."""
    log = new_log(files)
    for number in range(20):
        append(log, epoch=number // 10, timestamp=1000 + number, producer_id=7, producer_epoch=0, base_sequence=number)
    append(log, epoch=1, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    flush_resumably(log)
    assert log.recovery_point == log.end_offset == RESUMED
    append_marker(log, 5, is_commit=False, epoch=1)
    for number in range(10):
        append(log, epoch=2, timestamp=2000 - number, producer_id=7, producer_epoch=0, base_sequence=20 + number)
    return log


def check(log: Log) -> None:
    check_segments(log)
    assert served_offsets(log) == list(range(END))
    assert log.epochs.entries == [(0, 0), (1, 10), (2, 22)]
    assert log.producers.by_id[7].last_sequence == 29
    assert [entry[:2] for entry in log.aborted_transactions(0, END)] == [(5, 20)]


def reopened(files: SimulatedFiles, recovery_point: int = RESUMED) -> tuple[Log, int]:
    recovered = Recovered()
    log = new_log(files, recovery_point=recovery_point, recovered=recovered)
    return log, recovered.scanned_bytes


def test_only_what_lies_behind_is_read() -> None:
    files = SimulatedFiles()
    log = filled(files)
    size_bytes, position = log.size_bytes, log.active.position_of(RESUMED)
    files.kill()
    for recovery_point in (RESUMED, RESUMED + 1, END):
        log, scanned_bytes = reopened(files, recovery_point)
        check(log)
        assert scanned_bytes == size_bytes - position
        files.kill()


def test_a_segment_that_was_sealed_since_is_read_from_there_too() -> None:
    files = SimulatedFiles()
    log = filled(files)
    sealed_bytes, position = log.size_bytes, log.active.position_of(RESUMED)
    log.roll(0)
    append(log, epoch=2)
    for _ in range(2):
        size_bytes = log.size_bytes
        files.kill()
        log, scanned_bytes = reopened(files)
        check_segments(log)
        assert log.segments[0].size_bytes == sealed_bytes
        assert scanned_bytes == size_bytes - position


def test_all_is_read_where_the_disk_may_not_have_been_that_far() -> None:
    files = SimulatedFiles()
    size_bytes = filled(files).size_bytes
    files.kill()
    log, scanned_bytes = reopened(files, RESUMED - 1)
    check(log)
    assert scanned_bytes == size_bytes


def test_what_was_flushed_is_there_when_the_power_goes() -> None:
    files = SimulatedFiles()
    files.make_folder("data")
    files.sync_folder("")
    filled(files)
    files.crash(SYNCED_ONLY)
    log, _ = reopened(files)
    check_segments(log)
    assert served_offsets(log) == list(range(RESUMED))
    assert log.producers.by_id[7].last_sequence == 19
    assert log.producers.first_undecided_offset == 20


def without(kind: str) -> Callable[[SimulatedFiles], None]:
    return lambda files: files.remove(f"{FOLDER}/{0:020d}{kind}")


def zeroed(kind: str) -> Callable[[SimulatedFiles], None]:
    return lambda files: files.replace(f"{FOLDER}/{0:020d}{kind}", bytes(24))


def cut(kind: str) -> Callable[[SimulatedFiles], None]:
    return lambda files: files.replace(f"{FOLDER}/{0:020d}{kind}", b"")


def shifted(files: SimulatedFiles) -> None:
    """Entries that point into batches."""
    path = f"{FOLDER}/{0:020d}{INDEX}"
    data = bytearray(files.read_all(path))
    data[7::8] = bytes(byte ^ 1 for byte in data[7::8])
    files.replace(path, data)


def without_epochs(files: SimulatedFiles) -> None:
    files.remove(f"{FOLDER}/leader-epoch-checkpoint")


@pytest.mark.parametrize(
    "damage",
    [without(INDEX), without(TIME_INDEX), zeroed(INDEX), zeroed(TIME_INDEX), cut(INDEX), shifted, without_epochs],
)
def test_all_is_read_where_a_file_does_not_fit(damage: Callable[[SimulatedFiles], None]) -> None:
    files = SimulatedFiles()
    log = filled(files)
    log.active.write_indexes()
    size_bytes = log.size_bytes
    files.kill()
    damage(files)
    log, scanned_bytes = reopened(files)
    check(log)
    assert scanned_bytes == size_bytes


def test_of_the_snapshots_within_a_segment_the_last_two_stay() -> None:
    """The older of them, since the newer is of no use before the recovery point is written down."""
    files = SimulatedFiles()
    log = filled(files)
    for _ in range(3):
        append(log, epoch=2)
        flush_resumably(log)
    assert log.snapshots.offsets == [END + 2, END + 3]
    assert sum(name.endswith(".snapshot") for name in files.sizes(FOLDER)) == 2


def test_a_truncation_while_a_flush_is_under_way_undoes_its_snapshot() -> None:
    files = SimulatedFiles()
    log = filled(files)
    flush = log.flusher.begin_resumable()
    assert flush is not None
    log.truncate_to(END - 3, 0)
    flush.run()
    log.flusher.end(flush, 0)
    assert log.snapshots.offsets == [RESUMED]
    assert not files.exists(f"{FOLDER}/{END:020d}.snapshot")


def test_housekeeping_makes_such_places_when_much_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.log.flusher.RESUME_BYTES", 1000)
    files = SimulatedFiles()
    manager = LogManager(files, "data")
    manager.open(lambda _topic: SMALL, 0)
    log = manager.create("topic", 0, SMALL, 0)
    keeping = Housekeeping(manager, lambda: 0)
    for _ in range(30):
        append(log)
        run_here(keeping.flush())
    position, size_bytes = log.active.position_of(log.recovery_point), log.size_bytes
    assert 1000 <= position < size_bytes < position + 1000
    files.kill()
    manager = LogManager(files, "data")
    manager.open(lambda _topic: SMALL, 0)
    check_segments(manager.logs["topic", 0])
    assert manager.recovered["topic", 0].scanned_bytes == size_bytes - position
