"""A short walk through Ottla's log: write, look, read back, break it, see it heal.

Run it with `python examples/log_demo.py`. It works in a temporary folder and removes it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from ottla.broker.loop.slices import finished
from ottla.cli.main import main as ottla
from ottla.log.compaction import Compaction, cleanable
from ottla.log.files import DiskFiles
from ottla.log.log import Log
from ottla.log.lookup import offset_for_timestamp
from ottla.log.recovery import Recovered, open_log
from ottla.log.segment import Segment
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import read_header
from ottla.records.build import build_batch
from ottla.records.codec import Record
from ottla.records.compression import NONE, ZSTD
from ottla.records.read import read_records
from ottla.testing.slices import run_here

START_MS = 1_700_000_000_000  # 14 November 2023, 22:13:20 UTC
MINUTE_MS = 60_000
MINUTES = 60
CITIES = ("Brno", "Lyon", "Oslo", "Porto", "Turku")
LEADER_EPOCH = 0

# Small segments and a dense index, so that a few kilobytes show what gigabytes look like.
CONFIG = TopicConfig(internal_segment_bytes=4096, index_interval_bytes=1024, cleanup_policy=("compact",))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as data:
        folder = Path(data) / "weather-0"
        print(f"Ottla's log, in {data} (removed at the end)")
        log = write(folder)
        show(folder)
        read_by_offset(log)
        read_by_time(log)
        log.close(now_ms())
        tear(folder)
        log = heal(folder)
        compact(log)
        log.close(now_ms())
        flip_a_bit(folder)
    print("\nThat was it. Next: ottla log --help, docs/log-files.md")


def now_ms() -> int:
    """The demo has its own time, so that it is the same each time it runs."""
    return START_MS + MINUTES * MINUTE_MS


def title(text: str) -> None:
    print(f"\n== {text}")


def command(*arguments: object) -> None:
    """Run `ottla log`, and say so."""
    shown = (argument.name if isinstance(argument, Path) else str(argument) for argument in arguments)
    print(f"$ ottla log {' '.join(shown)}")
    ottla(["log", *map(str, arguments)])


def write(folder: Path) -> Log:
    title(
        f"Write: {MINUTES} minutes of weather from {len(CITIES)} cities, a batch a minute, every other one compressed"
    )
    log = open_log(DiskFiles(), str(folder), CONFIG, now_ms=START_MS)
    for minute in range(MINUTES):
        append(log, minute)
    log.advance_high_watermark(log.end_offset)
    log.flush(now_ms())
    print(f"offsets 0 to {log.end_offset - 1}, {log.size_bytes:,} bytes, flushed to the disk")
    return log


def append(log: Log, minute: int) -> None:
    """One batch: a record for each city, with the city as its key and each with its own time."""
    time_ms = START_MS + minute * MINUTE_MS
    batch = build_batch(
        [f"{(minute * 7 + number) % 40 - 10} degrees".encode() for number in range(len(CITIES))],
        keys=[city.encode() for city in CITIES],
        timestamps=[time_ms + 1000 * number for number in range(len(CITIES))],
        timestamp=time_ms,
        codec=ZSTD if minute % 2 else NONE,
    )
    log.append(batch, read_header(batch), LEADER_EPOCH, time_ms)


def show(folder: Path) -> None:
    title("Look: a log is a row of segments, each named by its first offset, with its indexes beside it")
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:>7,}  {path.name}")
    first = sorted(folder.glob("*.log"))[0]
    print("\nIts batches, one a line; then what its indexes know: the place of an offset, the offset of a time")
    command("dump", "--limit", "4", first, first.with_suffix(".index"), first.with_suffix(".timeindex"))


def read_by_offset(log: Log) -> None:
    title("Read by offset: the index says where to start, then it is one read")
    offset = 142
    found = log.read(offset, max_bytes=1, bound=log.high_watermark)
    assert found is not None
    segment = log.segments[log.segments.number_for(offset)]
    print(f"offset {offset} is in segment {segment.base_offset}, in the batch at byte {found.position}:")
    print_records(read_records(found.read(), start_offset=offset))


def read_by_time(log: Log) -> None:
    title("Read by time: what was the first record from half past ten on?")
    half_past_ten_ms = START_MS + 16 * MINUTE_MS + 40_000
    answer = finished(offset_for_timestamp(log, half_past_ten_ms))
    assert answer is not None
    found = log.read(answer.offset, max_bytes=1, bound=log.high_watermark)
    assert found is not None
    print_records(read_records(found.read(), start_offset=answer.offset)[:1])


def print_records(records: Iterable[Record]) -> None:
    for record in records:
        minutes, seconds = divmod((record.timestamp - START_MS) // 1000 + 13 * 60 + 20, 60)
        key, value = (record.key or b"").decode(), (record.value or b"").decode()
        print(f"  {record.offset:>4}  {22 + minutes // 60}:{minutes % 60:02}:{seconds:02}  {key:6} {value}")


def tear(folder: Path) -> None:
    title("A torn write: the power goes off while the last batch is on its way to the disk")
    last = sorted(folder.glob("*.log"))[-1]
    size = last.stat().st_size
    with last.open("r+b") as file:
        file.truncate(size - 40)
    print(f"{last.name} has lost its last 40 of {size:,} bytes")
    command("verify", last)


def heal(folder: Path) -> Log:
    title("Open it: what is torn is cut off, and all that is whole is there")
    recovered = Recovered()
    log = open_log(DiskFiles(), str(folder), CONFIG, now_ms=now_ms(), recovered=recovered)
    for fault in recovered.faults:
        print(f"found  {Path(fault).name}")
    print(f"cut    {recovered.cut_bytes} bytes; the log now ends with offset {log.end_offset - 1}")
    append(log, MINUTES - 1)
    log.advance_high_watermark(log.end_offset)
    log.flush(now_ms())
    print(f"wrote  the lost batch again; it ends with offset {log.end_offset - 1}")
    return log


def compact(log: Log) -> None:
    title("Compact it: of each city only the newest record is kept, and offsets stay what they are")
    records, size_bytes = count_records(log.segments), log.size_bytes
    run_here(Compaction(log, cleanable(log, 0, now_ms()), now_ms()).run())
    print(f"{records} records in {size_bytes:,} bytes became {count_records(log.segments)} in {log.size_bytes:,}:")
    print(
        f"{count_records(log.segments[:-1])} for the cities, {count_records(log.segments[-1:])} in the segment in use"
    )


def count_records(segments: Iterable[Segment]) -> int:
    return sum(header.count for segment in segments for _, header in segment.batches())


def flip_a_bit(folder: Path) -> None:
    title("A flipped bit: a disk that forgets does not say so, but every batch has a checksum")
    last = sorted(folder.glob("*.log"))[-1]
    data = bytearray(last.read_bytes())
    data[len(data) // 2] ^= 0b0000_0100
    last.write_bytes(data)
    print(f"byte {len(data) // 2} of {last.name} is not what it was")
    command("verify", folder)


if __name__ == "__main__":
    main()
