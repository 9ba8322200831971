"""leader-epoch-checkpoint and .txnindex have no checksum: where a flipped bit contradicts the batches, these count."""

from __future__ import annotations

import pytest

from ottla.log.checkpoint import LEADER_EPOCHS
from ottla.log.log import Log
from ottla.log.recovery import Recovered, open_log
from ottla.log.segment import ABORTED_INDEX, LOG
from ottla.log.topic_config import TopicConfig
from ottla.testing.files import SimulatedFiles
from tests.log.committed_reader import committed_records
from tests.log.test_recovery import END, check, filled, path
from tests.log.writing import FOLDER, append, append_marker, new_log, served_offsets

CONFIG = TopicConfig(internal_segment_bytes=1 << 20, index_interval_bytes=200)


@pytest.mark.parametrize("spoiled", [f"{FOLDER}/{LEADER_EPOCHS}", path(10, ABORTED_INDEX)])
def test_no_flipped_bit_is_believed_and_no_sound_batch_goes(spoiled: str) -> None:
    files = SimulatedFiles()
    filled(files).close(0)
    told = 0
    for position in range(len(files.read_all(spoiled))):
        for bit in range(8):
            files = SimulatedFiles()
            filled(files).close(0)
            files.flip_bit(spoiled, position, bit)
            files.kill()
            recovered = Recovered()
            check(new_log(files, recovery_point=END, recovered=recovered))
            assert (recovered.cut_bytes, recovered.rotten_bytes, recovered.removed_segments) == (0, 0, 0)
            told += len(recovered.faults)
            assert all("contradicts the batches" in fault for fault in recovered.faults)
            files.kill()
            again = Recovered()
            check(new_log(files, recovery_point=END, recovered=again))
            assert again.faults == []
    assert told > 20


def resumable(files: SimulatedFiles) -> Log:
    """One segment; recovery need not read it from its start."""
    log = new_log(files, CONFIG)
    for number in range(20):
        append(log, epoch=number // 10)
    append(log, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True, epoch=1)
    append_marker(log, 5, is_commit=False, epoch=1)
    append(log, epoch=1)
    flush = log.flusher.begin_resumable()
    assert flush is not None
    flush.run()
    log.flusher.end(flush, 0)
    append(log, epoch=2)
    return log


def test_neither_is_one_where_recovery_begins_within_a_segment() -> None:
    for name, size in ((LEADER_EPOCHS, 15), (path(0, ABORTED_INDEX).rpartition("/")[2], 34)):
        for position in range(size):
            files = SimulatedFiles()
            log = resumable(files)
            known = log.epochs.entries, log.aborted_transactions(0, 100)
            files.flip_bit(f"{FOLDER}/{name}", position, 1)
            files.kill()
            recovered = Recovered()
            opened = open_log(files, FOLDER, CONFIG, now_ms=0, recovery_point=23, recovered=recovered)
            assert (opened.epochs.entries, opened.aborted_transactions(0, 100)) == known
            assert opened.end_offset == 24
            assert (recovered.cut_bytes, recovered.rotten_bytes) == (0, 0)


def test_sound_files_are_not_made_again() -> None:
    files = SimulatedFiles()
    log = resumable(files)
    size_bytes = log.active.size_bytes
    files.kill()
    recovered = Recovered()
    open_log(files, FOLDER, CONFIG, now_ms=0, recovery_point=23, recovered=recovered)
    assert recovered.faults == []
    assert recovered.scanned_bytes < size_bytes / 10


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_whose_end_has_rotted_in_the_last_segment_stays_open_until_it_is_ended(is_commit: bool) -> None:
    """Nobody knows any more how it ended. Kafka, too, would leave it open, and would lose what comes behind it."""
    files = SimulatedFiles()
    log = new_log(files, CONFIG)
    append(log, [b"before"])
    append(log, [b"within"], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    position = log.active.size_bytes
    append_marker(log, 7, is_commit=is_commit)
    append(log, [b"behind"])
    log.flush(0)
    files.flip_bit(log.active.path(LOG), position + 62, 1)
    files.kill()
    recovered = Recovered()
    opened = open_log(files, FOLDER, CONFIG, now_ms=0, recovery_point=4, recovered=recovered)
    opened.advance_high_watermark(opened.end_offset)
    assert served_offsets(opened) == [0, 1, 3]
    assert opened.last_stable_offset == 1
    assert "transaction of producer 7 from offset 1 on is open" in recovered.faults[-1]
    append_marker(opened, 7, is_commit=False)  # as Kafka's kafka-transactions.sh abort does it
    opened.advance_high_watermark(opened.end_offset)
    assert opened.last_stable_offset == opened.end_offset
    assert [record.value for record in committed_records(opened, 0)] == [b"before", b"behind"]


def test_what_is_torn_contradicts_no_file() -> None:
    """A log that starts within its first segment, and that is read from there on anyway."""
    files = SimulatedFiles()
    log = new_log(files, CONFIG)
    for _ in range(10):
        append(log)
    log.advance_high_watermark(5)
    log.advance_log_start(3)
    log.epochs.save()
    files.replace(log.active.path(LOG), bytes(log.active.size_bytes))
    files.kill()
    recovered = Recovered()
    open_log(files, FOLDER, CONFIG, now_ms=0, recovery_point=0, log_start_offset=3, recovered=recovered)
    assert not any("contradicts" in fault for fault in recovered.faults)
