"""Opening a log: after a clean end and after any other, with files missing, torn, left over or half renamed."""

import dataclasses
import struct
from collections.abc import Callable

import pytest

from ottla.log.checkpoint import LEADER_EPOCHS
from ottla.log.log import Log
from ottla.log.recovery import Recovered, open_log
from ottla.log.segment import ABORTED_INDEX, CLEANED, DELETED, INDEX, LOG, SWAP, TIME_INDEX, name_of
from ottla.log.topic_config import TopicConfig
from ottla.records.build import build_batch
from ottla.testing.files import Crashed, Effect, SimulatedFiles
from ottla.testing.loss import SYNCED_ONLY
from tests.log.expected import check_segments
from tests.log.writing import FOLDER, SMALL, append, append_marker, new_log, served_offsets, served_values

COMPACTED = TopicConfig(internal_segment_bytes=4096, index_interval_bytes=256, cleanup_policy=("compact",))
END = 26


def path(base_offset: int, kind: str) -> str:
    return f"{FOLDER}/{name_of(base_offset)}{kind}"


def filled(files: SimulatedFiles) -> Log:
    """Three segments (0, 10, 20) with epochs, a producer and an aborted transaction in the second."""
    log = new_log(files)
    for number in range(25):
        if number in (10, 20):
            log.roll(0)
        if number == 12:
            append(log, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True, epoch=1)
        elif number == 15:
            append_marker(log, 5, is_commit=False, epoch=1)
        else:
            append(log, epoch=number // 10, timestamp=1000 + number)
    append(log, epoch=2, producer_id=7, producer_epoch=0, base_sequence=24)
    return log


def check(log: Log) -> None:
    """All is there, and all that follows from it."""
    check_segments(log)
    assert [segment.base_offset for segment in log.segments] == [0, 10, 20]
    assert served_offsets(log) == list(range(END))
    assert log.epochs.entries == [(0, 0), (1, 10), (2, 20)]
    assert log.producers.by_id.keys() == {5, 7}
    assert log.producers.by_id[7].last_sequence == 24
    assert [(entry.producer_id, entry.first_offset) for entry in log.aborted_transactions(0, END)] == [(5, 12)]
    assert [segment.max_timestamp for segment in log.segments] == [1009, 1019, 1024]


def test_a_new_folder() -> None:
    files = SimulatedFiles()
    log = new_log(files)
    assert (log.log_start_offset, log.end_offset) == (0, 0)
    assert served_values(log) == []
    assert new_log(files, log_start_offset=0).end_offset == 0


def test_a_new_folder_that_starts_elsewhere() -> None:
    log = new_log(log_start_offset=40)
    assert (log.log_start_offset, log.end_offset) == (40, 40)
    assert append(log).base_offset == 40


# After a clean end


def test_a_clean_end_is_taken_at_its_word() -> None:
    files = SimulatedFiles()
    filled(files).close(0)
    recovered = Recovered()
    log = new_log(files, clean=True, recovery_point=END, recovered=recovered)
    check(log)
    assert log.recovery_point == END
    assert recovered == Recovered()
    append(log, epoch=2, producer_id=7, producer_epoch=0, base_sequence=25)


@pytest.mark.parametrize("base_offset", [0, 10, 20])
@pytest.mark.parametrize("kind", [INDEX, TIME_INDEX])
@pytest.mark.parametrize("data", [None, b"", b"\xff" * 24, b"\0" * 24])
@pytest.mark.parametrize("clean", [False, True])
def test_an_index_that_is_missing_or_cannot_be_is_made_again(
    base_offset: int, kind: str, data: bytes | None, clean: bool
) -> None:
    files = SimulatedFiles()
    filled(files).close(0)
    if data is None:
        files.remove(path(base_offset, kind))
    else:
        files.replace(path(base_offset, kind), data)
    recovered = Recovered()
    check(new_log(files, clean=clean, recovery_point=END, recovered=recovered))
    assert recovered.scanned_bytes > 0
    assert recovered.faults == []


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("data", [struct.pack(">hqqqq", 1, 5, 12, 15, 16), b"\xff" * 34, bytes(33) + b"\1"])
def test_an_aborted_index_that_cannot_be_is_made_again(data: bytes, clean: bool) -> None:
    files = SimulatedFiles()
    filled(files).close(0)
    files.replace(path(10, ABORTED_INDEX), data)
    check(new_log(files, clean=clean, recovery_point=END))


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("data", [None, b"", b"junk", b"0\n1\n", b"\0\0\0\0\0\0"])
def test_epochs_that_are_missing_or_torn_are_made_again(data: bytes | None, clean: bool) -> None:
    files = SimulatedFiles()
    filled(files).close(0)
    if data is None:
        files.remove(f"{FOLDER}/{LEADER_EPOCHS}")
    else:
        files.replace(f"{FOLDER}/{LEADER_EPOCHS}", data)
    log = new_log(files, clean=clean, recovery_point=END)
    check(log)
    files.kill()
    check(new_log(files, recovery_point=END))


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("spoil", ["remove", "tear", "empty"])
def test_snapshots_that_are_missing_or_torn_are_done_without(clean: bool, spoil: str) -> None:
    files = SimulatedFiles()
    filled(files).close(0)
    for name in [name for name in files.sizes(FOLDER) if name.endswith(".snapshot")]:
        if spoil == "remove":
            files.remove(f"{FOLDER}/{name}")
        else:
            files.open(f"{FOLDER}/{name}").truncate(12 if spoil == "tear" else 0)
    check(new_log(files, clean=clean, recovery_point=END))


# After any other end


@pytest.mark.parametrize("recovery_point", [0, 5, 10, 15, 20, 21, END])
def test_what_was_not_flushed_is_read_and_checked(recovery_point: int) -> None:
    files = SimulatedFiles()
    filled(files)
    files.kill()
    recovered = Recovered()
    log = new_log(files, recovery_point=recovery_point, recovered=recovered)
    check(log)
    first = [0, 10, 20][max((recovery_point - 1) // 10, 0)]
    assert recovered.scanned_bytes == sum(s.size_bytes for s in log.segments if s.base_offset >= first)
    assert log.recovery_point == recovery_point


@pytest.mark.parametrize("left", ["one byte", "half a header", "all but one byte", "zeros", "junk"])
def test_a_torn_end_is_cut(left: str) -> None:
    files = SimulatedFiles()
    filled(files)
    torn = build_batch([b"torn"], timestamp=1, base_offset=END, leader_epoch=2)
    tails = {
        "one byte": bytes(torn[:1]),
        "half a header": bytes(torn[:30]),
        "all but one byte": bytes(torn[:-1]),
        "zeros": bytes(5000),
        "junk": b"\x7f" * 200,
    }
    files.open(path(20, LOG)).append(tails[left])
    files.kill()
    recovered = Recovered()
    log = new_log(files, recovery_point=20, recovered=recovered)
    check(log)
    assert recovered.cut_bytes == len(tails[left])
    assert len(recovered.faults) == 1
    assert log.lacks_end == (left in ("zeros", "junk"))  # which no process leaves that was killed
    append(log, [b"next"], epoch=2)
    files.kill()
    assert served_values(new_log(files))[-1] == b"next"


def test_what_comes_behind_a_fault_goes_too() -> None:
    files = SimulatedFiles()
    log = filled(files)
    files.flip_bit(path(10, LOG), log.segments[1].position_of(17) + 70, 0)
    files.kill()
    recovered = Recovered()
    log = new_log(files, recovered=recovered)
    check_segments(log)
    assert served_offsets(log) == list(range(17))
    assert log.epochs.entries == [(0, 0), (1, 10)]
    assert recovered.removed_segments == 1
    assert log.lacks_end
    assert not files.exists(path(20, LOG))
    assert append(log, epoch=3).base_offset == 17


def test_what_was_cut_does_not_come_back_behind_what_is_written_there() -> None:
    """After another crash, in which the disk may have the new batch and not know of the cut."""
    files = SimulatedFiles()
    log = new_log(files)
    sizes = []
    for _ in range(3):
        append(log)
        sizes.append(log.size_bytes)
    log.flush(0)
    files.sync_folder("")
    files.flip_bit(path(0, LOG), sizes[0] + 70, 0)
    files.open(path(0, LOG)).sync()
    files.crash(SYNCED_ONLY)
    assert new_log(files).end_offset == 1
    files.crash(SYNCED_ONLY)
    assert files.sizes(FOLDER)[path(0, LOG).removeprefix(f"{FOLDER}/")] == sizes[0]


@pytest.mark.parametrize(
    ("config", "recovery_point", "end"),
    [(SMALL, 0, 5), (SMALL, 5, 5), (COMPACTED, 5, 5), (COMPACTED, 0, END), (SMALL, 10, END), (COMPACTED, 10, END)],
)
def test_a_segment_that_lost_its_end(config: TopicConfig, recovery_point: int, end: int) -> None:
    """Behind the recovery point that is a loss; before it, and where that is not known, it may be compaction's work."""
    files = SimulatedFiles()
    log = filled(files)
    files.open(path(0, LOG)).truncate(log.segments[0].position_of(5))
    files.kill()
    log = open_log(files, FOLDER, config, now_ms=0, recovery_point=recovery_point)
    check_segments(log)
    assert served_offsets(log) == [offset for offset in range(end) if offset < 5 or offset >= 10]


def test_a_missing_segment_is_a_hole_too() -> None:
    files = SimulatedFiles()
    filled(files)
    files.remove(path(10, LOG))
    files.kill()
    log = new_log(files)
    assert served_offsets(log) == list(range(10))
    assert not files.exists(path(10, INDEX))
    assert append(log, epoch=3).base_offset == 10


def test_a_log_whose_first_segments_are_gone_starts_behind_them() -> None:
    files = SimulatedFiles()
    filled(files).close(0)
    for kind in (LOG, INDEX, TIME_INDEX):
        files.remove(path(0, kind))
    log = new_log(files, clean=True, recovery_point=END)
    assert log.log_start_offset == 10
    assert served_offsets(log) == list(range(10, END))
    assert log.epochs.entries == [(1, 10), (2, 20)]


@pytest.mark.parametrize("clean", [False, True])
def test_the_start_that_was_saved_counts(clean: bool) -> None:
    files = SimulatedFiles()
    filled(files).close(0)
    log = new_log(files, clean=clean, recovery_point=END, log_start_offset=13)
    assert log.log_start_offset == 13
    assert served_offsets(log) == list(range(13, END))
    assert log.epochs.entries == [(1, 13), (2, 20)]


def test_a_start_behind_the_end_begins_anew() -> None:
    """What was deleted is known to be gone; the rest was lost."""
    files = SimulatedFiles()
    filled(files)
    files.kill()
    log = new_log(files, log_start_offset=100)
    assert (log.log_start_offset, log.end_offset) == (100, 100)
    assert append(log).base_offset == 100


def test_a_high_watermark_is_not_known_when_a_log_is_opened() -> None:
    files = SimulatedFiles()
    filled(files).close(0)
    log = new_log(files, clean=True, log_start_offset=4)
    assert log.high_watermark == 4


# What compaction and removal leave behind


@pytest.mark.parametrize("suffix", [DELETED, CLEANED, ".tmp"])
@pytest.mark.parametrize("clean", [False, True])
def test_leftovers_go(suffix: str, clean: bool) -> None:
    files = SimulatedFiles()
    filled(files).close(0)
    for kind in (LOG, INDEX, TIME_INDEX, ABORTED_INDEX, ".snapshot"):
        files.open(path(10, kind) + suffix).append(b"left over")
        files.open(path(5, kind) + suffix).append(b"left over")
    files.open(f"{FOLDER}/{LEADER_EPOCHS}.tmp").append(b"left over")
    check(new_log(files, clean=clean, recovery_point=END))
    assert not any(name.endswith(suffix) for name in files.sizes(FOLDER))


def test_indexes_without_their_segment_go() -> None:
    files = SimulatedFiles()
    filled(files).close(0)
    for kind in (INDEX, TIME_INDEX, ABORTED_INDEX):
        files.open(path(5, kind)).append(bytes(24))
    check(new_log(files, clean=True, recovery_point=END))
    assert not any(name.startswith(name_of(5)) for name in files.sizes(FOLDER))


def test_strange_files_are_left_alone() -> None:
    files = SimulatedFiles()
    filled(files).close(0)
    files.open(f"{FOLDER}/notes.txt").append(b"mine")
    check(new_log(files, clean=True, recovery_point=END))
    assert files.read_all(f"{FOLDER}/notes.txt") == b"mine"


def compacted(files: SimulatedFiles, suffix: str) -> None:
    """The first two segments written into one, which has only the records 3 and 19, under a suffix."""
    other = SimulatedFiles()
    log = new_log(other, COMPACTED)
    for offset in (3, 19):
        batch = build_batch([b"kept"], timestamp=500 + offset, base_offset=offset, leader_epoch=offset // 10)
        log.append_replicated(memoryview(batch), 0)
    log.active.write_indexes()
    for kind in (LOG, INDEX, TIME_INDEX):
        files.replace(path(0, kind) + suffix, other.read_all(path(0, kind)))


def is_swapped(log: Log) -> bool:
    return served_offsets(log) == [3, 19, *range(20, END)]


def nothing(_files: SimulatedFiles) -> None: ...


def one_old_segment_is_out_of_the_way(files: SimulatedFiles) -> None:
    files.rename(path(0, LOG), path(0, LOG) + DELETED)


def old_segments_are_out_of_the_way(files: SimulatedFiles) -> None:
    for base_offset in (0, 10):
        for kind in (LOG, INDEX, TIME_INDEX, ABORTED_INDEX):
            if files.exists(path(base_offset, kind)):
                files.rename(path(base_offset, kind), path(base_offset, kind) + DELETED)


def old_segments_are_gone(files: SimulatedFiles) -> None:
    old_segments_are_out_of_the_way(files)
    for name in [name for name in files.sizes(FOLDER) if name.endswith(DELETED)]:
        files.remove(f"{FOLDER}/{name}")


def the_new_indexes_have_their_names(files: SimulatedFiles) -> None:
    old_segments_are_out_of_the_way(files)
    for kind in (INDEX, TIME_INDEX):
        files.rename(path(0, kind) + SWAP, path(0, kind))


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize(
    "reached",
    [
        nothing,
        one_old_segment_is_out_of_the_way,
        old_segments_are_out_of_the_way,
        old_segments_are_gone,
        the_new_indexes_have_their_names,
    ],
)
def test_a_swap_that_was_begun_is_finished(reached: Callable[[SimulatedFiles], None], clean: bool) -> None:
    files = SimulatedFiles()
    filled(files).close(0)
    compacted(files, SWAP)
    reached(files)
    for _ in range(2):
        log = open_log(files, FOLDER, COMPACTED, now_ms=0, clean=clean, recovery_point=END)
        check_segments(log)
        assert is_swapped(log)
        assert [segment.base_offset for segment in log.segments] == [0, 20]
        assert not any(name.endswith((SWAP, DELETED)) for name in files.sizes(FOLDER))
        files.kill()


def test_a_segment_that_was_not_all_renamed_to_be_swapped_in_is_not_taken() -> None:
    files = SimulatedFiles()
    filled(files).close(0)
    compacted(files, CLEANED)
    files.rename(path(0, INDEX) + CLEANED, path(0, INDEX) + SWAP)
    check(open_log(files, FOLDER, COMPACTED, now_ms=0, clean=True, recovery_point=END))
    assert not any(name.endswith((SWAP, CLEANED)) for name in files.sizes(FOLDER))


def test_swapped_indexes_without_their_segment_go() -> None:
    files = SimulatedFiles()
    filled(files).close(0)
    files.open(path(0, INDEX) + SWAP).append(bytes(16))
    check(new_log(files, clean=True, recovery_point=END))
    assert not files.exists(path(0, INDEX) + SWAP)


def test_a_recovery_that_is_cut_short_forgets_no_abort() -> None:
    """A segment too short for an index is trusted without one; what tells of its aborts must be there at any time."""
    config = TopicConfig(index_interval_bytes=400)
    for number in range(100):
        files = SimulatedFiles()
        log = new_log(files, config)
        for _ in range(20):
            append(log)
        log.roll(0)
        append(log, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
        append_marker(log, 7, is_commit=False)
        log.roll(0)
        append(log)
        log.flush(0)
        known = log.aborted_transactions(0, log.end_offset)
        assert len(known) == 1
        files.remove(log.segments[0].path(INDEX))
        files.kill()
        files.arm(files.operation_count + 1 + number, Effect.CRASH)
        is_cut_short = False
        try:
            open_log(files, FOLDER, config, now_ms=0, recovery_point=log.end_offset)
        except Crashed:
            is_cut_short = True
        files.kill()
        opened = open_log(files, FOLDER, config, now_ms=0, recovery_point=log.end_offset)
        assert opened.aborted_transactions(0, opened.end_offset) == known
        if not is_cut_short:
            return
    raise AssertionError("the recovery has no end")


@pytest.mark.parametrize("clean", [True, False])
def test_the_aborts_of_a_segment_whose_file_of_them_is_torn_are_found_again(clean: bool) -> None:
    files = SimulatedFiles()
    log = new_log(files)
    for sequence in (0, 1):
        append(log, producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True)
        append_marker(log, 7, is_commit=False)
    log.roll(0)
    append(log)
    log.close(0)
    known = log.aborted_transactions(0, log.end_offset)
    assert len(known) == 2
    torn = files.read_all(path(0, ABORTED_INDEX))[:-1]
    files.remove(path(0, ABORTED_INDEX))
    files.open(path(0, ABORTED_INDEX)).append(torn)
    files.kill()
    opened = open_log(files, FOLDER, SMALL, now_ms=0, recovery_point=log.end_offset, clean=clean)
    assert opened.aborted_transactions(0, opened.end_offset) == known


@pytest.mark.parametrize("timestamp", [2000, -1])
@pytest.mark.parametrize("how", ["cut", "emptied", "indexed less"])
def test_a_log_that_is_small_again_is_opened_as_it_was_closed(how: str, timestamp: int) -> None:
    """It has the files of a larger one, and they must not be believed where they say less than the batches."""
    files = SimulatedFiles()
    log, config = new_log(files), SMALL
    for _ in range(4):
        append(log, [bytes(20)], timestamp=min(timestamp, 1000))
    log.close(0)
    if how == "cut":
        log.truncate_to(1, 0)
    elif how == "emptied":
        log.truncate_fully(9, 0)
    else:
        config = dataclasses.replace(SMALL, index_interval_bytes=4096)
        log = new_log(files, config, clean=True, recovery_point=4)
    append(log, timestamp=timestamp, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    append_marker(log, 5, is_commit=False, timestamp=timestamp)
    aborted = log.aborted_transactions(0, log.end_offset)
    log.close(0)
    again = new_log(files, config, clean=True, recovery_point=log.recovery_point)
    check_segments(again)
    assert again.active.max_timestamp == timestamp
    assert again.aborted_transactions(0, log.end_offset) == aborted != []


@pytest.mark.parametrize("timestamp", [1000, 0, -1])
def test_after_a_clean_end_nothing_is_read_whatever_the_dates_of_the_records(timestamp: int) -> None:
    files = SimulatedFiles()
    log = new_log(files)
    for number in range(30):
        if number == 15:
            log.roll(0)
        append(log, [bytes(50)], timestamp=timestamp)
    log.close(0)
    recovered = Recovered()
    again = new_log(files, clean=True, recovery_point=30, recovered=recovered)
    assert (recovered.scanned_bytes, again.end_offset) == (0, 30)
    check_segments(again)
