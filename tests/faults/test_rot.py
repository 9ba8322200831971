"""One rotten byte costs the batch it is in. What is sound stays, before it and behind it, and the operator is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.log.checkpoint import LEADER_EPOCHS, RECOVERY_POINTS
from ottla.log.manager import CLEAN_SHUTDOWN, LogManager
from ottla.log.recovery import Recovered, open_log
from ottla.log.segment import INDEX, LOG
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import (
    BASE_TIMESTAMP_AT,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    read_header,
    whole_batches,
)
from ottla.records.build import build_batch
from ottla.records.codec import stamp_batches
from ottla.testing.files import Crashed, Effect, SimulatedFiles
from tests.faults.broker_process import BrokerProcess
from tests.log.committed_reader import committed_records
from tests.log.writing import FOLDER, append, append_batch, append_marker, new_log, served_offsets

WAIT_S = 20.0
TOPIC = "rotting"
RECORDS = 200
VALUE = b"." * 20_000
CONFIG = TopicConfig(internal_segment_bytes=1000, index_interval_bytes=200)
YOUNG = TopicConfig(internal_segment_bytes=1 << 20, index_interval_bytes=1 << 16)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data of a broker that was stopped in good order: 200 records in four segments, each a batch of its own."""
    with BrokerProcess(tmp_path, "--set", "log.segment.bytes=1048576") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(WAIT_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "log_level": 0})
        for number in range(RECORDS):
            producer.produce(TOPIC, VALUE, b"%d" % number, partition=0)
            assert producer.flush(WAIT_S) == 0
        assert broker.errors() == ""
    assert len(list(tmp_path.glob(f"{TOPIC}-0/*.log"))) == 4
    return tmp_path


def consumed_keys(broker: BrokerProcess) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "log_level": 0})
    _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), WAIT_S)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    keys: list[int] = []
    offset = 0
    while offset < end:
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None
        keys.append(int(message.key() or b""))
        offset = (message.offset() or 0) + 1
    consumer.close()
    return keys


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_rotten_byte_and_a_missing_index_cost_one_batch(data: Path, is_clean: bool) -> None:
    _, segment, *_ = sorted(data.glob(f"{TOPIC}-0/*.log"))
    contents = bytearray(segment.read_bytes())
    contents[len(contents) // 2] ^= 1
    segment.write_bytes(contents)
    segment.with_suffix(INDEX).unlink()
    if not is_clean:
        (data / CLEAN_SHUTDOWN).unlink()
    with BrokerProcess(data, "--log-level", "warning") as broker:
        keys = consumed_keys(broker)
        told = broker.errors()
    assert len(keys) == RECORDS - 1
    assert keys == sorted(set(keys))
    [lost] = set(range(RECORDS)) - set(keys)
    assert re.search(rf"{segment.name}, byte \d+: .+ from offset {lost} on are rotten and were put aside", told)
    assert [path.name for path in data.glob(f"{TOPIC}-0/*.rotten")] != []
    with BrokerProcess(data, "--log-level", "warning") as broker:
        assert consumed_keys(broker) == keys
        assert broker.errors() == ""


def test_epochs_that_the_batches_do_not_have_cost_no_record(data: Path) -> None:
    """The file has no checksum. Believed, it would make every batch of the last segment look rotten."""
    (data / CLEAN_SHUTDOWN).unlink()
    epochs = data / f"{TOPIC}-0" / LEADER_EPOCHS
    sound = epochs.read_text()
    epochs.write_text(sound.replace("\n0 0\n", "\n8 0\n"))
    assert epochs.read_text() != sound
    with BrokerProcess(data, "--log-level", "warning") as broker:
        assert consumed_keys(broker) == list(range(RECORDS))
        told = broker.errors()
    assert f"{LEADER_EPOCHS}: contradicts the batches" in told
    assert epochs.read_text() == sound


@pytest.mark.parametrize("what", ["last batch", "file of epochs"])
def test_a_leader_epoch_that_never_was_costs_no_record_and_stops_no_writer(data: Path, what: str) -> None:
    """No batch behind the last one contradicts it, and its checksum does not cover the epoch."""
    epochs = data / f"{TOPIC}-0" / LEADER_EPOCHS
    sound = epochs.read_text()
    segment = max(data.glob(f"{TOPIC}-0/*.log"))
    contents = segment.read_bytes()
    if what == "last batch":
        (data / CLEAN_SHUTDOWN).unlink()
        flipped = bytearray(contents)
        last, _ = list(whole_batches(contents))[-1]
        flipped[last + LEADER_EPOCH_AT] ^= 0x40
        segment.write_bytes(flipped)
    else:
        epochs.write_text(sound.replace("\n0 0\n", "\n8 0\n"))
        assert epochs.read_text() != sound
    with BrokerProcess(data, "--log-level", "warning") as broker:
        assert (epochs.read_text(), segment.read_bytes()) == (sound, contents)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 5000, "log_level": 0})
        producer.produce(TOPIC, VALUE, b"%d" % RECORDS, partition=0)
        assert producer.flush(WAIT_S) == 0
        assert consumed_keys(broker) == list(range(RECORDS + 1))
        told = broker.errors()
    assert re.search(r"leader epoch \d+ from offset \d+ on, where it is \d+; it was corrected", told)
    (data / CLEAN_SHUTDOWN).unlink()
    with BrokerProcess(data, "--log-level", "warning") as broker:
        assert consumed_keys(broker) == list(range(RECORDS + 1))
        assert broker.errors() == ""


def test_a_torn_end_is_no_rot() -> None:
    """What was written after the last sync is cut, with all behind it, also where a new epoch had just begun."""
    files = SimulatedFiles()
    log = new_log(files, CONFIG)
    append(log)
    log.flush(0)
    append(log, epoch=1)
    position = log.active.size_bytes
    append(log, epoch=1)
    append(log, epoch=1)
    files.flip_bit(log.active.path(LOG), position + 70, 1)
    files.kill()
    recovered = Recovered()
    opened = open_log(files, FOLDER, CONFIG, now_ms=0, recovery_point=1, recovered=recovered)
    assert opened.end_offset == 2
    assert recovered.rotten_bytes == 0
    assert [name for name in files.sizes(FOLDER) if name.endswith(".rotten")] == []


@pytest.mark.parametrize("behind", [0, 1, 3])
def test_a_rotten_length_is_not_taken_for_a_write_that_was_not_finished(behind: int) -> None:
    """The log is cut there, too, but others may have what was acknowledged, and must be let lead."""
    files = SimulatedFiles()
    log = new_log(files, CONFIG)
    append(log)
    position = log.active.size_bytes
    for _ in range(1 + behind):
        append(log)
    files.flip_bit(log.active.path(LOG), position + LENGTH_AT, 5)  # a batch of half a GB
    files.kill()
    for _ in range(2):  # the second time nothing is left to see
        opened = open_log(files, FOLDER, CONFIG, now_ms=0, recovery_point=1)
        files.kill()
        assert opened.end_offset == 1
        assert opened.lacks_end


def test_a_transaction_whose_end_has_rotted_is_still_known_to_be_over() -> None:
    files = SimulatedFiles()
    log = new_log(files, CONFIG)
    for sequence in (0, 1):
        append(log, producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    position = log.active.size_bytes
    append_marker(log, 7, is_commit=True)
    append(log)
    log.roll(0)
    append(log)
    log.flush(0)
    log.active.write_indexes()
    files.flip_bit(log.segments[0].path(LOG), position + 62, 1)
    files.remove(log.segments[0].path(INDEX))
    files.kill()
    opened = open_log(files, FOLDER, CONFIG, now_ms=0, recovery_point=log.end_offset)
    assert served_offsets(opened) == [0, 1, 3, 4]
    opened.advance_high_watermark(opened.end_offset)
    assert opened.last_stable_offset == 5


def test_what_may_be_sound_is_put_aside_where_nobody_knows_what_was_on_the_disk() -> None:
    files = SimulatedFiles()
    files.make_folder("data")
    manager = LogManager(files, "data")
    manager.open(lambda _topic: CONFIG, 0)
    log = manager.create("t", 0, CONFIG, 0)
    for number in range(30):
        append_batch(log, build_batch([b"%d" % number * 20], timestamp=1000))
    bases = [segment.base_offset for segment in log.segments]
    sizes = {segment.base_offset: segment.size_bytes for segment in log.segments}
    manager.close(0)
    for name in (CLEAN_SHUTDOWN, RECOVERY_POINTS):
        files.remove(f"data/{name}")
    files.flip_bit(log.segments[1].path(LOG), 70, 1)
    files.kill()
    again = LogManager(files, "data")
    again.open(lambda _topic: CONFIG, 0)
    assert again.logs["t", 0].end_offset == bases[1]
    aside = {int(name[:20]): size for name, size in files.sizes("data/t-0").items() if name.endswith(".log.aside")}
    assert aside == {base: sizes[base] for base in bases[2:]}
    assert len(again.recovered["t", 0].faults) == 1 + len(aside)


def test_the_offsets_of_a_rotten_end_are_not_given_again() -> None:
    """Or who had read up to there would miss the records that get them."""
    files = SimulatedFiles()
    log = new_log(files, CONFIG)
    for _ in range(4):
        append(log)
    position = log.active.size_bytes
    append(log, [b"a", b"b"])
    log.flush(0)
    files.flip_bit(log.active.path(LOG), position + 70, 1)
    for _ in range(2):
        files.kill()
        opened = open_log(files, FOLDER, CONFIG, now_ms=0, recovery_point=6)
        assert (opened.end_offset, served_offsets(opened)) == (6, [0, 1, 2, 3])
    assert append(opened).base_offset == 6


@pytest.mark.parametrize("where", [70, LENGTH_AT + 2, LENGTH_AT + 3], ids=["a record", "a long length", "a length"])
def test_a_batch_within_a_record_of_a_rotten_batch_is_not_taken_for_one_of_the_log(where: int) -> None:
    files = SimulatedFiles()
    log = new_log(files, CONFIG)
    append(log)
    inner = build_batch([b"inner"], timestamp=1000)
    stamp_batches(inner, 1, 0)
    position = log.active.size_bytes
    append(log, [b"outer", bytes(inner)])
    append(log)
    log.flush(0)
    files.flip_bit(log.active.path(LOG), position + where, 1)
    files.kill()
    recovered = Recovered()
    opened = open_log(files, FOLDER, CONFIG, now_ms=0, recovery_point=4, recovered=recovered)
    assert served_offsets(opened) == [0, 3]
    assert recovered.rotten_bytes == log.active.size_bytes - 2 * position


def test_a_rotten_length_that_reaches_to_a_batch_costs_no_batch_behind_it() -> None:
    """Of batches of 128 bytes each, one whose length has another bit seems to end where the next but one begins."""
    files = SimulatedFiles()
    log = new_log(files, CONFIG)
    for _ in range(5):
        assert len(build_batch([b"." * 59], timestamp=1000)) == 128
        append(log, [b"." * 59])
    log.flush(0)
    files.flip_bit(log.active.path(LOG), 128 + LENGTH_AT + 3, 7)
    files.kill()
    opened = open_log(files, FOLDER, CONFIG, now_ms=0, recovery_point=5)
    assert served_offsets(opened) == [0, 2, 3, 4]


def closed_batches(config: TopicConfig) -> tuple[SimulatedFiles, list[int]]:
    """A log of six small batches that was closed in good order, and where each starts."""
    files = SimulatedFiles()
    log = new_log(files, config)
    starts = []
    for _ in range(6):
        starts.append(log.active.size_bytes)
        append(log, [b"."])
    log.close(0)
    assert log.recovery_point == 6
    return files, starts


@pytest.mark.parametrize("number", [4, 5])
def test_a_log_that_was_closed_ends_where_it_did_whatever_has_rotted_at_its_end(number: int) -> None:
    """Else offsets that others have read would be given again, or billions left out."""
    for byte in (0, LENGTH_AT - 1, LENGTH_AT + 3, LAST_OFFSET_DELTA_AT, BASE_TIMESTAMP_AT - 1):
        for bit in range(8):
            files, starts = closed_batches(CONFIG)
            files.flip_bit(f"{FOLDER}/{0:020d}{LOG}", starts[number] + byte, bit)
            opened = open_log(files, FOLDER, CONFIG, now_ms=0, clean=True, recovery_point=6)
            assert opened.end_offset == 6, (byte, bit)
            if number == 5:
                assert served_offsets(opened) == [0, 1, 2, 3, 4], (byte, bit)
            assert append(opened).base_offset == 6


@pytest.mark.parametrize("byte", [LENGTH_AT - 1, BASE_TIMESTAMP_AT - 1])
def test_what_rotted_before_the_recovery_point_does_not_make_the_batch_behind_it_look_torn(byte: int) -> None:
    """The batch seems to end where the next one does, and so at the place where recovery begins to read."""
    files, starts = closed_batches(CONFIG)
    files.flip_bit(f"{FOLDER}/{0:020d}{LOG}", starts[4] + byte, 0)
    opened = open_log(files, FOLDER, CONFIG, now_ms=0, recovery_point=6)
    assert served_offsets(opened) == [0, 1, 2, 3, 5]


def test_a_first_batch_is_not_blamed_for_the_offset_of_the_second() -> None:
    files, starts = closed_batches(YOUNG)
    files.flip_bit(f"{FOLDER}/{0:020d}{LOG}", starts[1] + LENGTH_AT - 1, 0)  # it says 0 in place of 1
    opened = open_log(files, FOLDER, YOUNG, now_ms=0, recovery_point=6)
    assert served_offsets(opened) == [0, 2, 3, 4, 5]


@pytest.mark.parametrize("timestamp", [1000, -1])
@pytest.mark.parametrize(("is_commit", "shown"), [(True, [0, 1, 3, 4, 5]), (False, [3, 4, 5])])
def test_the_end_of_a_transaction_that_has_rotted_counts_however_often_recovery_is_cut_short(
    timestamp: int, is_commit: bool, shown: list[int]
) -> None:
    for number in range(200):
        files = SimulatedFiles()
        log = new_log(files, CONFIG)
        for sequence in (0, 1):
            append(
                log, producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True, timestamp=timestamp
            )
        position = log.active.size_bytes
        append_marker(log, 7, is_commit=is_commit, timestamp=timestamp)
        append(log, timestamp=timestamp)
        log.roll(0)
        append(log, timestamp=timestamp)
        log.roll(0)
        if not is_commit:  # who is told of the abort must not miss what the same producer writes after it
            append(log, producer_id=7, producer_epoch=0, base_sequence=2, is_transactional=True, timestamp=timestamp)
            append_marker(log, 7, is_commit=True, timestamp=timestamp)
        else:
            append(log, timestamp=timestamp)
        log.close(0)
        files.flip_bit(log.segments[0].path(LOG), position + 62, 1)
        files.remove(log.segments[0].path(INDEX))
        files.kill()
        files.arm(files.operation_count + 1 + number, Effect.CRASH)
        is_cut_short = False
        try:
            open_log(files, FOLDER, CONFIG, now_ms=0, recovery_point=log.end_offset)
        except Crashed:
            is_cut_short = True
        for _ in range(2):
            files.kill()
            opened = open_log(files, FOLDER, CONFIG, now_ms=0, recovery_point=log.end_offset)
            opened.advance_high_watermark(opened.end_offset)
            assert opened.last_stable_offset == log.end_offset
            assert [record.offset for record in committed_records(opened, 0)] == shown
        if not is_cut_short:
            return
    raise AssertionError("the recovery has no end")


def test_an_aborted_transaction_stays_hidden_where_something_else_has_rotted() -> None:
    """Also where a segment is so short, and has no times, that it needs no index."""
    files = SimulatedFiles()
    log = new_log(files, CONFIG)
    append(log, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True, timestamp=-1)
    append_marker(log, 7, is_commit=False, timestamp=-1)
    position = log.active.size_bytes
    append(log, timestamp=-1)
    append(log, timestamp=-1)
    log.roll(0)
    append(log, timestamp=-1)
    log.close(0)
    files.flip_bit(log.segments[0].path(LOG), position + 62, 1)
    files.remove(log.segments[0].path(INDEX))
    files.kill()
    opened = open_log(files, FOLDER, CONFIG, now_ms=0, recovery_point=log.end_offset)
    opened.advance_high_watermark(opened.end_offset)
    assert [record.offset for record in committed_records(opened, 0)] == [3, 4]


def test_what_rots_later_at_the_same_place_is_kept_beside_what_rotted_before() -> None:
    files = SimulatedFiles()
    log = new_log(files, CONFIG)
    for number in range(4):
        append(log, [b"value %d" % number])
    log.flush(0)
    path, size = log.active.path(LOG), log.active.size_bytes // 4
    for _ in range(2):
        files.flip_bit(path, size + 62, 1)
        files.kill()
        open_log(files, FOLDER, CONFIG, now_ms=0, recovery_point=4)
    kept = [files.read_all(f"{FOLDER}/{name}") for name in files.sizes(FOLDER) if name.endswith(".rotten")]
    assert [read_header(contents).base_offset for contents in kept] == [1, 2]
