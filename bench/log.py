"""The log: appending, finding, opening, compacting."""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from bench.report import Result, Spread, measure, rate, spread_of
from ottla.log.compaction import Compaction, cleanable
from ottla.log.files import DiskFiles
from ottla.log.log import Log
from ottla.log.lookup import offset_for_timestamp
from ottla.log.manager import LogManager
from ottla.log.recovery import open_log
from ottla.log.segment import Segment
from ottla.log.sync import SyncRound
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import HEADER, HEADER_SIZE, PREFIX_SIZE, BatchHeader, read_header
from ottla.records.build import build_batch
from ottla.records.validate import validate_produce
from ottla.testing.slices import run_here

MEGABYTE = 1 << 20
GIGABYTE = 1 << 30
START_MS = 1_700_000_000_000
BATCHES = {"1 record of 100 B": 1, "16 KB": 150, "1 MB": 9_500}


def run(quick: bool) -> list[Result]:
    results: list[Result] = []
    for part in (appends, group_commits, lookups, opening_after_a_crash, opening_many, compaction):
        results += part(quick)
    return results


@contextmanager
def scratch() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="ottla-bench-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def new_log(folder: str, config: TopicConfig | None = None) -> Log:
    DiskFiles().make_folder(f"{folder}/bench-0")
    return open_log(DiskFiles(), f"{folder}/bench-0", config or TopicConfig(), now_ms=START_MS)


def produced(records: int) -> bytearray:
    return build_batch([b"x" * 100] * records, timestamp=START_MS)


def append_whole(log: Log, batch: bytearray) -> None:
    """All that the leader does for one produced batch, as it lies in the buffer it was received in."""
    batch[:8] = bytes(8)  # as a producer sends it: the last round left its offset there
    validated = validate_produce(
        batch,
        log.produce_settings,
        partition="bench-0",
        version=12,
        has_transactional_id=False,
        now_ms=START_MS,
    )
    log.append(validated.batch, validated.header, 0, START_MS)


def appends(quick: bool) -> list[Result]:
    """Validated and appended, to the page cache; each sample goes to a log of its own, removed behind it."""
    results = []
    targets = {"1 record of 100 B": "< 10", "1 MB": ">= 1.5"}
    for name, records in BATCHES.items():
        batch = produced(records)
        number = min(20_000, (100 if quick else 400) * MEGABYTE // len(batch))
        seconds = []
        for _ in range(7):
            with scratch() as folder:
                log = new_log(folder)
                append_whole(log, batch)
                seconds.append(measure(partial(append_whole, log, batch), repeats=1, number=number).median)
        spread = spread_of(seconds)
        bytes_a_second = rate(spread, len(batch))
        if records == 1:
            results.append(Result.of(f"append, {name}", spread, "us", targets[name], scale=1e6))
        results.append(Result.of(f"append, {name}", rate(spread, 1), "batches/s"))
        if records > 1:
            results.append(Result.of(f"append, {name}", bytes_a_second, "GB/s", targets.get(name, ""), scale=1e-9))
    return results


def group_commits(quick: bool) -> list[Result]:
    """One record appended and synced before it counts, alone and a hundred to a sync."""
    results = []
    with scratch() as folder:
        log = new_log(folder)
        batch = produced(1)

        def round_of(appends: int) -> None:
            for _ in range(appends):
                append_whole(log, batch)
            under_way = SyncRound([log])
            under_way.run()
            under_way.end(START_MS)

        for appends_a_sync in (1, 100):
            spread = measure(partial(round_of, appends_a_sync), number=20)
            name = f"append with sync, {appends_a_sync} to a sync"
            results.append(Result.of(name, rate(spread, appends_a_sync), "batches/s"))
    return results


# Finding


def lookups(quick: bool) -> list[Result]:
    """One offset found in a log of 10 MB and in one a thousand times as long.

    The batches are real at their headers, and holes in a sparse file where their records would be: a lookup reads
    nothing else, and the disk need not hold 10 GB.
    """
    results = []
    for name, size_bytes in (("10 MB", 10 * MEGABYTE), ("10 GB", 10 * GIGABYTE if not quick else GIGABYTE)):
        if quick and name == "10 GB":
            name = "1 GB"
        with scratch() as folder:
            log = sparse_log(folder, size_bytes, batch_bytes=16_384)
            step = 7_919 * 100  # a prime number of batches, so that the looks are spread over the log
            look = looker(log, step)
            results.append(Result.of(f"lookup by offset, log of {name}", measure(look), "us", scale=1e6))
    with scratch() as folder:
        log = new_log(folder, TopicConfig(internal_segment_bytes=16 * MEGABYTE))
        for number in range(4_000):
            batch = build_batch([b"x" * 100] * 150, timestamp=START_MS + number)
            log.append(batch, read_header(batch), 0, START_MS)
        at = iter(range(1 << 60))

        def by_time() -> None:
            offset_for_timestamp(log, START_MS + next(at) * 769 % 4_000)

        results.append(Result.of("lookup by time, log of 64 MB", measure(by_time), "us", scale=1e6))
    return results


def looker(log: Log, step: int) -> Callable[[], object]:
    offset = 0

    def look() -> None:
        nonlocal offset
        offset = (offset + step) % log.end_offset
        log.read(offset, MEGABYTE, log.end_offset)

    return look


def sparse_log(folder: str, size_bytes: int, batch_bytes: int) -> Log:
    """A log of batches of 100 offsets each, without their records."""
    log = new_log(folder)
    template = BatchHeader(0, batch_bytes - PREFIX_SIZE, 0, 2, 0, 0, 99, START_MS, START_MS, -1, -1, -1, 100)
    for number in range(size_bytes // batch_bytes):
        if log.active.size_bytes + batch_bytes > log.config.segment_bytes:
            log.roll(START_MS)
        header = template._replace(base_offset=number * 100)
        append_hole(log.active, HEADER.pack(*header), batch_bytes, header)
        log.end_offset = header.next_offset
    return log


def append_hole(segment: Segment, header: bytes, batch_bytes: int, facts: BatchHeader) -> None:
    position = segment.append(header)
    segment.file.truncate(position + batch_bytes)
    segment.size_bytes += batch_bytes - HEADER_SIZE
    segment.note_batch(position, batch_bytes, facts.last_offset, facts.max_timestamp)


# Opening


def opening_after_a_crash(quick: bool) -> list[Result]:
    """Every batch of the segment of the recovery point is read and checked: here, of the whole log."""
    results = []
    size = 100 * MEGABYTE if quick else GIGABYTE
    for name, records in (("16 KB", 150), ("1 KB", 9)):
        with scratch() as folder:
            log = new_log(folder, TopicConfig(internal_segment_bytes=2 * GIGABYTE - 1))
            batch = produced(records)
            for _ in range(size // len(batch)):
                log.append(batch, read_header(batch), 0, START_MS)
            spread = measure(lambda: reopen(folder), repeats=5, number=1)
        label = f"open {size // MEGABYTE} MB after a crash, batches of {name}"
        target = "< 1" if not quick and records == 150 else ""
        results.append(Result.of(label, spread, "s", target))
        results.append(Result.of(f"recovery, batches of {name}", rate(spread, size), "MB/s", scale=1e-6))
    return results


def reopen(folder: str) -> None:
    open_log(DiskFiles(), f"{folder}/bench-0", TopicConfig(), now_ms=START_MS)


def opening_many(quick: bool) -> list[Result]:
    """A data folder of partitions with a record each, made and opened."""
    count = 500 if quick else 5_000
    results = []
    with scratch() as folder:
        manager = LogManager(DiskFiles(), folder)
        manager.open(lambda _topic: TopicConfig(), START_MS)
        start = time.perf_counter()
        for number in range(count):
            manager.create(f"topic-{number}", 0, TopicConfig(), START_MS, bytes(16))
        taken = time.perf_counter() - start
        results.append(Result.of(f"create {count:,} empty partitions", Spread(taken, taken, taken), "s"))
        start = time.perf_counter()
        for log in manager.logs.values():
            append_whole(log, produced(1))
        taken = time.perf_counter() - start
        results.append(Result.of(f"first record to {count:,} partitions", Spread(taken, taken, taken), "s"))
        manager.close(START_MS)
        for ending in ("clean end", "crash"):
            seconds = []
            for _ in range(3):
                start = time.perf_counter()
                manager = LogManager(DiskFiles(), folder)
                manager.open(lambda _topic: TopicConfig(), START_MS)
                seconds.append(time.perf_counter() - start)
                if ending == "clean end":
                    manager.close(START_MS)
                else:
                    release(manager)
            target = "< 1" if not quick else ""
            label = f"open {count:,} partitions after a {ending}"
            results.append(Result.of(label, spread_of(seconds), "s", target))
        process = subprocess.run(
            [sys.executable, "-c", MEMORY_OF_OPENING, folder], capture_output=True, text=True, check=True
        )
        megabytes = int(process.stdout) / 1e6
        results.append(Result(f"memory that {count:,} open partitions take", megabytes, "MB", megabytes, megabytes))
    return results


MEMORY_OF_OPENING = """
import sys
from pathlib import Path
from ottla.log.files import DiskFiles
from ottla.log.manager import LogManager
from ottla.log.topic_config import TopicConfig

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

config, manager = TopicConfig(), LogManager(DiskFiles(), sys.argv[1])
before = resident_bytes()
manager.open(lambda topic: config, 0)
print(resident_bytes() - before)
"""


def release(manager: LogManager) -> None:
    """Let go of a data folder without closing it, as a crash does."""
    manager.logs.clear()
    manager.abandon()


# Compacting


def compaction(quick: bool) -> list[Result]:
    """Rounds over logs of keyed records of 100 B in batches of 16 KB, each key ten times."""
    size = (16 if quick else 128) * MEGABYTE
    seconds = []
    for _ in range(3):
        with scratch() as folder:
            config = TopicConfig(cleanup_policy=("compact",), internal_segment_bytes=size // 4)
            log = new_log(folder, config)
            keys = size // 130 // 10
            number = 0
            while log.size_bytes < size:
                names = [b"key %d" % ((number + each) * 7919 % keys) for each in range(140)]
                batch = build_batch([b"x" * 100] * 140, keys=names, timestamp=START_MS)
                log.append(batch, read_header(batch), 0, START_MS)
                number += 140
            log.roll(START_MS)
            log.advance_high_watermark(log.end_offset)
            log.flush(START_MS)
            start = time.perf_counter()
            run_here(Compaction(log, cleanable(log, 0, START_MS), START_MS).run())
            seconds.append(time.perf_counter() - start)
    return [Result.of("compaction, of log read", rate(spread_of(seconds), size), "MB/s", scale=1e-6)]
