"""Compaction with transactions: whoever reads committed records sees none that was aborted, and the last of each key.

Random work with open, committed and aborted transactions, tombstones, rounds of compaction at any time, stops and
crashes, held against a model. OTTLA_COMPACTION_SEEDS is how many different days are tried.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from ottla.log.checkpoint import CLEANER_OFFSETS, RECOVERY_POINTS
from ottla.log.compaction import ENTRY_BYTES
from ottla.log.housekeeping import Housekeeping
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.topic_config import MOST, TopicConfig
from ottla.records.build import build_batch
from ottla.testing.files import SimulatedFiles
from ottla.testing.slices import run_here
from tests.log.committed_reader import committed_records
from tests.log.writing import append_batch, append_marker

SEEDS = int(os.environ.get("OTTLA_COMPACTION_SEEDS", "15"))
STEPS = 250
KEYS = [b"a", b"b", b"c", b"d", b"e", b"f"]
PRODUCERS = (1, 2, 3, 4)
PARTITION = ("compacted", 0)
CONFIG = TopicConfig(
    internal_segment_bytes=1000,
    index_interval_bytes=200,
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=50,
    file_delete_delay_ms=0,
)

Shown = tuple[int, bytes | None, bytes | None]  # offset, key, value


class Day:
    """A log with everything that happens to one, and what was written to it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.files = SimulatedFiles()
        self.files.make_folder("data")
        self.now_ms = 1000
        self.committed: list[Shown] = []
        self.transactions: dict[int, list[Shown]] = {}  # open ones, by producer
        self._sequences = dict.fromkeys(PRODUCERS, 0)
        self._count = 0
        self._open()

    @property
    def log(self) -> Log:
        return self.manager.logs[PARTITION]

    def _open(self) -> None:
        self.manager = LogManager(self.files, "data")
        self.manager.open(lambda _topic: CONFIG, self.now_ms)
        if PARTITION not in self.manager.logs:
            self.manager.create(*PARTITION, CONFIG, self.now_ms)
        self.log.advance_high_watermark(self.log.end_offset)

    def step(self) -> None:
        steps = {
            self.write: 30,
            self.write_in_transaction: 40,
            self.end_transaction: 25,
            self.roll: 8,
            self.flush: 12,
            self.compact: 12,
            self.wait: 5,
            self.restart: 2,
            self.crash: 2,
        }
        [chosen] = self.random.choices(list(steps), list(steps.values()))
        chosen()

    # What happens

    def write(self) -> None:
        self.committed += self._append()

    def write_in_transaction(self) -> None:
        producer_id = self.random.choice(PRODUCERS)
        self.transactions.setdefault(producer_id, []).extend(self._append(producer_id))

    def _append(self, producer_id: int = -1) -> list[Shown]:
        pairs = []
        for key in self.random.choices(KEYS, k=self.random.randint(1, 3)):
            self._count += 1
            pairs.append((key, None if self.random.random() < 0.25 else b"%d" % self._count))
        is_transactional = producer_id >= 0
        batch = build_batch(
            [value for _, value in pairs],
            keys=[key for key, _ in pairs],
            timestamp=self.now_ms,
            producer_id=producer_id,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=self._sequences[producer_id] if is_transactional else -1,
            is_transactional=is_transactional,
        )
        if is_transactional:
            self._sequences[producer_id] += len(pairs)
        base_offset = append_batch(self.log, batch, now_ms=self.now_ms).base_offset
        self.log.advance_high_watermark(self.log.end_offset)
        return [(base_offset + number, key, value) for number, (key, value) in enumerate(pairs)]

    def end_transaction(self) -> None:
        if self.transactions:
            producer_id = self.random.choice(list(self.transactions))
            is_commit = self.random.random() < 0.5
            append_marker(self.log, producer_id, is_commit=is_commit, timestamp=self.now_ms)
            self.log.advance_high_watermark(self.log.end_offset)
            written = self.transactions.pop(producer_id)
            self.committed += written if is_commit else []

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def flush(self) -> None:
        self.log.flush(self.now_ms)
        if self.random.random() < 0.5:
            self.manager.write_checkpoint(RECOVERY_POINTS)

    def compact(self) -> None:
        map_bytes = self.random.choice([1, 3, 1000]) * ENTRY_BYTES
        housekeeping = Housekeeping(self.manager, lambda: self.now_ms, map_bytes=map_bytes)
        rounds = housekeeping.compact()
        if self.random.random() < 0.2:  # it does not get far
            for _ in range(self.random.randint(1, 4)):
                job = next(rounds, None)
                if job is not None:
                    job()
            rounds.close()
        else:
            run_here(rounds)
        run_here(housekeeping.remove())

    def wait(self) -> None:
        self.now_ms += self.random.choice([1, 60])

    def restart(self) -> None:
        self.manager.close(self.now_ms)
        self.files.kill()
        self._open()

    def crash(self) -> None:
        """As kill -9: all that was written is there, and no more than the checkpoints knew."""
        if self.random.random() < 0.5:
            self.manager.write_checkpoint(CLEANER_OFFSETS)
        self.files.kill()
        self._open()

    # What must be true

    def check(self) -> None:
        visible = sorted(record for record in self.committed if record[0] < self.log.last_stable_offset)
        self._check_from(self.log.log_start_offset, visible, max_bytes=1 << 20)
        if self.log.end_offset:
            offset = self.random.randrange(self.log.end_offset)
            self._check_from(offset, [record for record in visible if record[0] >= offset], max_bytes=300)

    def _check_from(self, offset: int, visible: list[Shown], max_bytes: int) -> None:
        seen = [(record.offset, record.key, record.value) for record in committed_records(self.log, offset, max_bytes)]
        assert seen == sorted(set(seen))
        assert set(seen) <= set(visible), "a record was shown that was aborted, or never written"
        expected = {key: value for _, key, value in visible}
        known = {key: value for _, key, value in seen}
        for key, value in expected.items():
            assert known.get(key) == value, f"the last of {key!r} is {value!r}"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_readers_of_committed_records_see_the_last_of_each_key(seed: int) -> None:
    day = Day(seed)
    for _ in range(STEPS):
        day.step()
        day.check()


def test_a_tombstone_may_be_kept_for_ever() -> None:
    files = SimulatedFiles()
    files.make_folder("data")
    manager = LogManager(files, "data")
    config = TopicConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, delete_retention_ms=MOST)
    manager.open(lambda _topic: config, 1000)
    log = manager.create(*PARTITION, config, 1000)
    append_batch(log, build_batch([None], keys=[b"gone"], timestamp=1000))
    log.roll(1000)
    log.advance_high_watermark(log.end_offset)
    log.flush(1000)
    run_here(Housekeeping(manager, lambda: 2000).compact())
    assert [(record.key, record.timestamp) for record in committed_records(log, 0)] == [(b"gone", 1000)]
