"""What a flush, a roll and a close must have brought to the disk."""

from ottla.log.log import Log
from ottla.testing.files import SimulatedFiles
from ottla.testing.loss import SYNCED_ONLY
from tests.log.writing import append, append_marker, new_log, served_values


def aborted(log: Log) -> list[int]:
    return [entry.producer_id for entry in log.aborted_transactions(0, log.end_offset)]


def abort_a_transaction(log: Log) -> None:
    append(log, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    append_marker(log, 5, is_commit=False)


def files_with_data_folder() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_folder("data")
    files.sync_folder("")
    return files


def test_what_was_flushed_survives_also_in_a_folder_that_was_just_made() -> None:
    files = files_with_data_folder()
    log = new_log(files)
    append(log, [b"flushed"])
    log.flush(0)
    append(log, [b"not flushed"])
    files.crash(SYNCED_ONLY)
    assert served_values(new_log(files)) == [b"flushed"]


def test_the_first_flush_of_every_life_makes_sure_of_the_folder() -> None:
    files = files_with_data_folder()
    append(new_log(files), [b"before"])
    files.kill()
    new_log(files).flush(0)
    files.crash(SYNCED_ONLY)
    assert served_values(new_log(files)) == [b"before"]


def test_indexes_of_a_segment_that_was_sealed_after_its_flush_are_flushed_too() -> None:
    for is_killed in (False, True):
        files = files_with_data_folder()
        log = new_log(files)
        abort_a_transaction(log)
        log.flush(0)
        log.roll(0)
        if is_killed:
            files.kill()
            log = new_log(files, recovery_point=2)
        append(log)
        log.flush(0)
        files.crash(SYNCED_ONLY)
        assert aborted(new_log(files, recovery_point=log.recovery_point)) == [5]


def test_indexes_that_were_not_flushed_are_made_again() -> None:
    files = files_with_data_folder()
    log = new_log(files)
    abort_a_transaction(log)
    log.flush(0)
    log.roll(0)
    files.crash(SYNCED_ONLY)
    assert aborted(new_log(files, recovery_point=2)) == [5]


def test_a_closed_log_is_whole_on_the_disk() -> None:
    files = files_with_data_folder()
    log = new_log(files)
    abort_a_transaction(log)
    log.flush(0)
    log.close(0)
    files.crash(SYNCED_ONLY)
    log = new_log(files, clean=True)
    assert aborted(log) == [5]
    assert log.end_offset == 2
    assert log.segments[0].max_timestamp == 1000
