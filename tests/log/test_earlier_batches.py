"""The last batches of each producer are known again after any end, clean or not, wherever a snapshot was taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.earlier_batches import ENTRY, HEAD, pack_earlier_batches, unpack_earlier_batches
from ottla.log.errors import CorruptLog
from ottla.log.log import Log
from ottla.log.producers import KEPT_BATCHES, AppendedBatch, Producer, Producers
from ottla.log.recovery import open_log
from ottla.log.topic_config import TopicConfig
from ottla.records.build import build_batch
from ottla.testing.files import SimulatedFiles
from tests.log.writing import FOLDER, append_batch, new_log

CONFIG = TopicConfig(internal_segment_bytes=4096, index_interval_bytes=128)
PRODUCERS = (7, 8, 9)


def write(log: Log, producer_id: int, sequence: int, count: int = 2) -> tuple[int, bool]:
    """Write one batch; its base offset, and whether it was known."""
    batch = build_batch([b"value"] * count, timestamp=1000, producer_id=producer_id, producer_epoch=0,
                        base_sequence=sequence)  # fmt: skip
    appended = append_batch(log, batch)
    return appended.base_offset, appended.duplicate


def check_known(log: Log, sent: dict[tuple[int, int], int]) -> None:
    """The last five of each producer, sent again, are answered as the first time."""
    for producer_id in PRODUCERS:
        last = sorted(key for key in sent if key[0] == producer_id)[-KEPT_BATCHES:]
        for key in last:
            assert write(log, *key) == (sent[key], True)


@pytest.mark.parametrize("how", ["clean", "killed"])
@pytest.mark.parametrize("batches", [1, 3, 5, 40])
def test_the_last_five_are_known_again(how: str, batches: int) -> None:
    files = SimulatedFiles()
    log = new_log(files, CONFIG)
    sent: dict[tuple[int, int], int] = {}
    for number in range(batches):
        for producer_id in PRODUCERS:
            sent[producer_id, number * 2] = write(log, producer_id, number * 2)[0]
        if number % 10 == 7:
            log.roll(0)  # the next five come from both sides of a snapshot
        log.flush(0)
    if how == "clean":
        log.close(0)
    files.kill()
    opened = open_log(
        files, FOLDER, CONFIG, now_ms=0, clean=how == "clean", recovery_point=log.recovery_point, log_start_offset=0
    )
    check_known(opened, sent)
    assert opened.end_offset == log.end_offset


@pytest.mark.parametrize("damage", ["torn", "missing"])
def test_a_torn_file_costs_only_what_it_said(damage: str) -> None:
    files = SimulatedFiles()
    log = new_log(files, CONFIG)
    offsets = [write(log, 7, number * 2)[0] for number in range(20)]
    log.close(0)
    [path] = [f"{FOLDER}/{name}" for name in files.sizes(FOLDER) if name.endswith(".batches")]
    if damage == "torn":
        files.flip_bit(path, HEAD.size + 3, 1)
    else:
        files.remove(path)
    files.kill()
    opened = open_log(files, FOLDER, CONFIG, now_ms=0, clean=True)
    assert write(opened, 7, 38) == (offsets[-1], True)
    assert len(opened.producers.by_id[7].batches) == 1


def test_the_files_go_with_their_snapshots() -> None:
    files = SimulatedFiles()
    log = new_log(files, CONFIG)
    for number in range(40):
        write(log, 7, number * 2)
        if number % 10 == 9:
            log.roll(0)
    assert [name for name in files.sizes(FOLDER) if name.endswith(".batches")] == [
        f"{offset:020d}.batches" for offset in log.snapshots.offsets
    ]
    log.truncate_to(45, 0)
    assert {int(name[:20]) for name in files.sizes(FOLDER) if name.endswith(".batches")} == set(log.snapshots.offsets)
    log.advance_high_watermark(40)
    log.remove_first(2, 0)
    assert {int(name[:20]) for name in files.sizes(FOLDER) if name.endswith(".batches")} == set(log.snapshots.offsets)


BATCHES = st.builds(
    AppendedBatch, st.integers(0, 2**31 - 1), st.integers(0, 2**62), st.integers(0, 1000), st.integers(-1, 2**50)
)


def producers_with(batches: dict[int, list[AppendedBatch]]) -> Producers:
    producers = Producers()
    for producer_id, known in batches.items():
        producer = Producer(3)
        producer.batches.extend(known)
        producers.restore([(producer_id, producer)])
    return producers


@given(st.dictionaries(st.integers(0, 2**62), st.lists(BATCHES, max_size=5), max_size=4))
def test_what_was_packed_is_unpacked(batches: dict[int, list[AppendedBatch]]) -> None:
    data = pack_earlier_batches(producers_with(batches), 42)
    expected = [(producer_id, 3, batch) for producer_id, known in batches.items() for batch in known[:-1]]
    if data is None:
        assert expected == []
    else:
        assert unpack_earlier_batches(data) == (42, expected)


def test_what_is_not_such_a_file_is_refused() -> None:
    data = pack_earlier_batches(producers_with({7: [AppendedBatch(1, 1, 1, 0), AppendedBatch(3, 3, 1, 0)]}), 42)
    assert data is not None
    assert len(data) == HEAD.size + ENTRY.size
    for broken in (b"", data[:-1], b"\x00\x02" + data[2:], data[:-1] + b"\xff"):
        with pytest.raises(CorruptLog):
            unpack_earlier_batches(broken)
