"""A batch that decompresses to very much: whoever reads its records holds a portion of them, and lets others in."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.log.compaction import ENTRY_BYTES, Compaction, cleanable
from ottla.log.files import DiskFiles
from ottla.log.inspect.partition import PartitionCheck
from ottla.log.lookup import FoundOffset, offset_for_timestamp
from ottla.log.visible import VisibleTally, visible_count
from ottla.records.batch import HEADER, HEADER_SIZE, read_header, stamp_crc
from ottla.records.build import finish_batch, read_marker
from ottla.records.codec import encode_columns
from ottla.records.compression import GZIP, LZ4, NAMES, ZSTD, TooLarge
from ottla.testing.files import SimulatedFiles
from ottla.testing.slices import run_here
from tests.log.bombs import TIMESTAMP, bomb
from tests.log.test_compaction import compact, contents, make_log, pairs, put, seal
from tests.log.test_visible import finished
from tests.log.writing import append_batch

RECORDS = 100
VALUE = bytes(1 << 20)
MOST_BYTES = 24 << 20  # a quarter of what comes out of the bomb

bombs = pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD], ids=NAMES.__getitem__)


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most_bytes < MOST_BYTES


def numbered_keys(count: int = RECORDS) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@bombs
def test_compaction_of_a_bomb_takes_short_steps_and_little_memory(codec: int, tmp_path: Path) -> None:
    log = make_log(DiskFiles(), str(tmp_path / "t-0"))
    append_batch(log, bomb(codec, numbered_keys(), VALUE))
    put(log, *[(key, b"new") for key in numbered_keys()[::2]])
    seal(log)
    compaction = Compaction(log, cleanable(log, 0, 2000), 2000)
    steps = 0
    with little_memory():
        for job in compaction.run():
            steps += 1
            if job is not None:
                job()
    assert steps > 3 * RECORDS  # the keys, what is kept, and the writing: each lets others in between two records
    kept = contents(log)
    assert [record.key for record in kept if record.value != b"new"] == numbered_keys()[1::2]
    assert all(record.value == VALUE for record in kept[: RECORDS // 2])
    assert [record.offset for record in kept] == [*range(1, RECORDS, 2), *range(RECORDS, RECORDS + RECORDS // 2)]


@bombs
def test_a_bomb_of_tombstones_gets_its_horizon(codec: int, tmp_path: Path) -> None:
    keys = [b"%d" % number + bytes(1 << 18) for number in range(20)]
    log = make_log(DiskFiles(), str(tmp_path / "t-0"))
    append_batch(log, bomb(codec, keys, None))
    seal(log)
    compact(log)
    assert [(record.key, record.value, record.timestamp) for record in contents(log)] == [
        (key, None, TIMESTAMP + number) for number, key in enumerate(keys)
    ]
    put(log, (b"another", b""))
    seal(log)
    compact(log, now_ms=2001 + log.config.delete_retention_ms)
    assert [record.key for record in contents(log)] == [b"another"]


def test_a_map_that_is_full_within_a_batch_ends_there() -> None:
    """As with Kafka: one batch of very many keys does not make the map larger than it may be."""
    log = make_log(SimulatedFiles(), "/data/t-0")
    append_batch(log, bomb(ZSTD, numbered_keys(5000), b"old"))
    append_batch(log, bomb(ZSTD, numbered_keys(5000)[1:], b"new"))
    seal(log)
    cleaned_up_to, rounds = 0, 0
    while cleaned_up_to < log.end_offset:
        compaction = Compaction(log, cleanable(log, cleaned_up_to, 2000), 2000, map_bytes=1000 * (ENTRY_BYTES + 4))
        run_here(compaction.run())
        assert cleaned_up_to < compaction.cleaned_up_to <= cleaned_up_to + 1100
        cleaned_up_to = compaction.cleaned_up_to
        rounds += 1
    assert rounds >= 9
    assert pairs(log) == [(0, b"0", b"old"), *((4999 + number, b"%d" % number, b"new") for number in range(1, 5000))]


@bombs
def test_verification_of_a_bomb_takes_little_memory(codec: int, tmp_path: Path) -> None:
    log = make_log(DiskFiles(), str(tmp_path / "t-0"))
    append_batch(log, bomb(codec, numbered_keys(), VALUE))
    wrong = bomb(codec, numbered_keys(), VALUE)
    HEADER.pack_into(wrong, 0, *read_header(wrong)._replace(max_timestamp=TIMESTAMP + RECORDS - 2))
    stamp_crc(wrong, 0, len(wrong))
    append_batch(log, wrong)
    log.close(0)
    with little_memory():
        reports = PartitionCheck(tmp_path / "t-0").run()
    [problem] = [problem for report in reports for problem in report.problems]
    assert problem.reason.startswith(f"a record has timestamp {TIMESTAMP + RECORDS - 1}")


@bombs
def test_a_lookup_by_time_in_a_bomb_takes_short_steps_and_little_memory(codec: int, tmp_path: Path) -> None:
    log = make_log(DiskFiles(), str(tmp_path / "t-0"))
    append_batch(log, bomb(codec, numbered_keys(), VALUE))
    search, steps = offset_for_timestamp(log, TIMESTAMP + RECORDS - 1), 0
    with little_memory():
        while True:
            try:
                next(search)
            except StopIteration as end:
                found = end.value
                break
            steps += 1
    assert found == FoundOffset(RECORDS - 1, TIMESTAMP + RECORDS - 1, 0)
    assert steps > RECORDS


def test_a_marker_is_never_much() -> None:
    area = encode_columns([bytes(1 << 20)], [b"\0\0\0\1"], None, None, None, 0, HEADER_SIZE)
    batch = finish_batch(area, 1, 0, 0, 0, codec=ZSTD, producer_id=1, producer_epoch=0, is_control=True)
    with pytest.raises(TooLarge):
        read_marker(batch)


@bombs
def test_a_lag_that_ends_within_a_bomb_with_holes_takes_little_memory(codec: int, tmp_path: Path) -> None:
    log = make_log(DiskFiles(), str(tmp_path / "t-0"))
    append_batch(log, bomb(codec, numbered_keys(), VALUE))
    put(log, *[(key, b"new") for key in numbered_keys()[::2]])
    seal(log)
    compact(log)
    with little_memory():
        assert visible_count(log, 0, RECORDS - 10) == RECORDS // 2 - 5
        assert visible_count(log, RECORDS - 10, log.end_offset) == 5 + RECORDS // 2


def test_a_lag_that_begins_or_ends_within_a_bomb_with_holes_is_counted_in_steps(tmp_path: Path) -> None:
    log = make_log(DiskFiles(), str(tmp_path / "t-0"))
    append_batch(log, bomb(ZSTD, numbered_keys(), VALUE))
    put(log, *[(key, b"new") for key in numbered_keys()[::2]])
    seal(log)
    compact(log)
    log.advance_high_watermark(log.end_offset)
    tally = VisibleTally(log)
    first = RECORDS - 10
    assert sum(1 for _ in tally.counting(first, log.end_offset)) > RECORDS // 3  # it begins within the bomb
    for start, steps in ((first, 0), (RECORDS - 5, RECORDS // 3)):
        counting = tally.between(start, log.end_offset)
        assert sum(1 for _ in counting) >= steps
    assert finished(tally.between(first, log.end_offset)) == 5 + RECORDS // 2
