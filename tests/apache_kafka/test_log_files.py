"""The same files: Kafka's tools read what Ottla's log writes, and Ottla's log opens what Kafka wrote."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ottla.log.checkpoint import parse_epochs
from ottla.log.compaction import Compaction, cleanable
from ottla.log.files import DiskFiles
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.recovery import Recovered, open_log
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import read_header
from ottla.records.build import ControlMarker, build_batch, build_marker
from ottla.records.read import read_records
from ottla.testing.slices import run_here
from tests.apache_kafka.harness import run_tool
from tests.apache_kafka.mixed_topic import MixedTopic, WrittenRecord

DUMP = "org.apache.kafka.tools.DumpLogSegments"
COMPLAINTS = (
    "Mismatches in",
    "not found",
    "Found timestamp mismatch",
    "Found out of order",
    "isvalid: false",
    "Could not",
)


def dump(folder: Path, *options: str) -> str:
    """What Kafka's own tool says of every segment, index and snapshot in a folder."""
    endings = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = sorted(str(file) for file in folder.iterdir() if file.name.endswith(endings))
    return run_tool(DUMP, "--files", ",".join(files), *options)


def readable(log: Log) -> list[WrittenRecord]:
    """All records as a consumer would fetch them, one read after the other."""
    found: list[WrittenRecord] = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        fetched = log.read(offset, 10_000, log.end_offset)
        assert fetched is not None
        data = fetched.read()
        found += [
            WrittenRecord(record.offset, record.timestamp, record.key, record.value, record.headers)
            for record in read_records(data, start_offset=offset)
        ]
        offset = max(header_end(data), offset + 1)
    return found


def header_end(data: bytes) -> int:
    position, end = 0, 0
    while len(data) - position >= 61:
        header = read_header(data, position)
        if header.size > len(data) - position:
            break
        end = header.next_offset
        position += header.size
    return end


@pytest.mark.parametrize("ending", ["killed", "stopped"])
def test_a_partition_that_kafka_wrote_opens_with_every_record(
    mixed_topics: tuple[MixedTopic, MixedTopic], ending: str, tmp_path: Path
) -> None:
    topic = mixed_topics[["killed", "stopped"].index(ending)]
    folder = shutil.copytree(topic.folder.parent, tmp_path / "data")
    manager = LogManager(DiskFiles(), str(folder))
    manager.open(lambda _topic: TopicConfig(), now_ms=0)
    log = manager.logs["mixed", 0]
    assert manager.recovered.get(("mixed", 0), Recovered()).faults == []
    assert log.end_offset == topic.end_offset
    assert tuple(readable(log)) == topic.records


@pytest.mark.parametrize("clean", [True, False])
def test_its_aborted_transactions_are_known(stopped_topic: MixedTopic, tmp_path: Path, clean: bool) -> None:
    folder = shutil.copytree(stopped_topic.folder, tmp_path / "mixed-0")
    log = open_log(DiskFiles(), str(folder), TopicConfig(), now_ms=0, clean=clean)
    log.advance_high_watermark(log.end_offset)
    assert log.last_stable_offset == log.end_offset
    aborted = log.aborted_transactions(0, log.end_offset)
    committed = set(stopped_topic.committed_offsets)
    hidden = [record.offset for record in stopped_topic.records if record.offset not in committed]
    assert aborted
    assert hidden
    assert all(any(entry.first_offset <= offset < entry.last_offset for entry in aborted) for offset in hidden)


def test_what_a_scan_makes_of_it_is_what_kafka_had_in_its_files(stopped_topic: MixedTopic, tmp_path: Path) -> None:
    """Indexes, aborted index and epochs remade from the batches equal those that Kafka wrote."""
    folder = shutil.copytree(stopped_topic.folder, tmp_path / "mixed-0")
    log = open_log(DiskFiles(), str(folder), TopicConfig(index_interval_bytes=512), now_ms=0, clean=False)
    log.active.write_indexes()
    for theirs in stopped_topic.folder.iterdir():
        if theirs.suffix in (".index", ".timeindex", ".txnindex") and theirs.stat().st_size:
            assert (folder / theirs.name).read_bytes() == theirs.read_bytes(), theirs.name
    theirs_epochs = parse_epochs((stopped_topic.folder / "leader-epoch-checkpoint").read_bytes())
    # The last epoch began with the broker's last start, and nothing was written in it.
    assert log.epochs.entries == [entry for entry in theirs_epochs if entry[1] < log.end_offset]


def write_a_mix(folder: Path) -> Log:
    """Several segments with all codecs, idempotent and transactional producers, epochs and markers."""
    config = TopicConfig(internal_segment_bytes=6_000, cleanup_policy=("compact",))
    log = open_log(DiskFiles(), str(folder), config, now_ms=1_700_000_000_000)
    now_ms = 1_700_000_000_000
    for number in range(120):
        now_ms += 1000
        transactional = number % 10 >= 5
        batch = build_batch(
            [b"value %d" % number * 20, None, b""],
            keys=[b"key %d" % (number % 17), b"gone %d" % number, None],
            headers=[[("name", b"header")], [], [("absent", None)]],
            timestamp=now_ms,
            codec=number % 5,
            producer_id=100 + transactional,
            producer_epoch=0,
            base_sequence=number // 10 * 15 + number % 5 * 3,
            is_transactional=transactional,
        )
        log.append(batch, read_header(batch), number // 50, now_ms)
        if number % 10 == 9:
            marker = build_marker(
                ControlMarker(number % 20 == 9, 3), producer_id=101, producer_epoch=0, timestamp=now_ms
            )
            log.append(marker, read_header(marker), number // 50, now_ms)
    log.advance_high_watermark(log.end_offset)
    return log


def test_kafkas_dump_tool_reads_our_segments_indexes_and_snapshots(kafka_classpath: str, tmp_path: Path) -> None:
    folder = tmp_path / "ours-0"
    log = write_a_mix(folder)
    end_offset, segments = log.end_offset, len(log.segments)
    log.close(0)
    assert segments > 3
    assert list(folder.glob("*.txnindex"))
    told = dump(folder, "--deep-iteration", "--print-data-log")
    for complaint in COMPLAINTS:
        assert complaint not in told
    assert f"lastOffset: {end_offset - 1} " in told
    assert told.count("isTransactional: true isControl: true") == 12
    assert "producerId: 100 producerEpoch: 0" in told
    assert "endTxnMarker: COMMIT" in told
    assert "endTxnMarker: ABORT" in told


def test_kafkas_dump_tool_reads_what_our_compaction_leaves(kafka_classpath: str, tmp_path: Path) -> None:
    folder = tmp_path / "ours-0"
    log = write_a_mix(folder)
    before = sum(segment.size_bytes for segment in log.segments)
    log.roll(0)
    log.flush(0)
    run_here(Compaction(log, cleanable(log, 0, 1_800_000_000_000), 1_800_000_000_000).run())
    for path in log.segments.due_removals(1 << 62):
        Path(path).unlink(missing_ok=True)
    assert sum(segment.size_bytes for segment in log.segments) < before
    log.close(0)
    told = dump(folder, "--deep-iteration")
    for complaint in COMPLAINTS:
        assert complaint not in told
    assert "deleteHorizonMs: OptionalLong[18000" in told
