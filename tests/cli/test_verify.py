"""`ottla log verify`: sound folders pass, and each kind of damage is found and named."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.cli import progress
from ottla.cli.main import main
from ottla.log.checkpoint import LEADER_EPOCHS
from ottla.log.compaction import Compaction, cleanable
from ottla.log.files import DiskFiles
from ottla.log.inspect.folder import check_path
from ottla.log.producers import Producers
from ottla.log.recovery import open_log
from ottla.log.snapshot import pack_snapshot, unpack_snapshot
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import (
    ATTRIBUTES_AT,
    COUNT_AT,
    LAST_OFFSET_DELTA_AT,
    MAX_TIMESTAMP_AT,
    read_header,
    stamp_crc,
    whole_batches,
)
from ottla.records.build import build_batch
from ottla.testing.slices import run_here
from tests.cli.partitions import TIME, append, contents

FIRST = "00000000000000000000"


def verified(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, list[str]]:
    """What is wrong with each file, by its name; the exit code and the summary must agree."""
    code = main(["log", "verify", "--json", *map(str, arguments)])
    *files, summary = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    wrong = [file for file in files if not file["ok"]]
    assert [bool(file["problems"]) for file in files] == [not file["ok"] for file in files]
    assert summary["type"] == "summary"
    assert (summary["files"], summary["wrong"], summary["ok"]) == (len(files), len(wrong), not wrong)
    assert code == (1 if wrong else 0)
    return {Path(file["path"]).name: [problem["reason"] for problem in file["problems"]] for file in wrong}


def first_log(data: Path) -> Path:
    return data / "orders-0" / f"{FIRST}.log"


def test_a_sound_folder(written_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verified(capsys, written_data) == {}
    assert verified(capsys, written_data / "orders-0", written_data / "orders-1") == {}


def test_each_file_alone(written_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [path for path in sorted(written_data.rglob("*")) if path.is_file() and not path.name.startswith(".")]
    assert len({path.suffix for path in paths}) > 5
    assert main(["log", "verify", "--json", *map(str, paths)]) == 0
    files = [json.loads(line) for line in capsys.readouterr().out.splitlines()][:-1]
    assert [file["path"] for file in files] == [str(path) for path in paths]


def test_what_it_says_of_sound_files(written_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "verify", str(first_log(written_data))]) == 0
    path, size_bytes = first_log(written_data), first_log(written_data).stat().st_size
    first, summary = capsys.readouterr().out.splitlines()
    assert first.startswith(f"ok     {path}  (batches ")
    assert summary == f"1 file, {size_bytes:,} bytes: all sound"


def test_what_it_says_of_damage(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = first_log(data)
    path.write_bytes(path.read_bytes()[:-10])
    assert main(["log", "verify", str(data)]) == 1
    lines = capsys.readouterr().out.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith(f"WRONG  {path}"))
    assert lines[place + 1].startswith("         byte ")
    assert lines[-1].endswith(": 1 of them wrong")


def test_nothing_is_written(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "orders-0" / f"{FIRST}.index").unlink()
    first_log(data).write_bytes(first_log(data).read_bytes()[:-10])
    before = contents(data)
    verified(capsys, data)
    assert contents(data) == before


def test_all_damaged_batches_of_a_segment_are_found(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = first_log(data)
    damaged = bytearray(path.read_bytes())
    positions = [position for position, _ in whole_batches(path.read_bytes())]
    for position in positions[1], positions[3]:
        damaged[position + 80] ^= 0x10
    path.write_bytes(damaged)
    assert main(["log", "verify", "--json", str(path)]) == 1
    file = json.loads(capsys.readouterr().out.splitlines()[0])
    assert [problem["position"] for problem in file["problems"]] == [positions[1], positions[3]]
    assert file["facts"]["batches"] == len(positions) - 2


def test_a_segment_full_of_damage_is_given_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{FIRST}.log"
    path.write_bytes(b"".join(bytes(build_batch([b"a"], timestamp=1, leader_epoch=0)) for _ in range(300)))
    reasons = verified(capsys, path)[path.name]
    assert reasons[0] == "base offset 0 comes where 1 was due"
    assert len(reasons) == 100
    assert reasons[-1] == "more than 99 problems: the rest is not listed"


def change_first_batch(path: Path, at: int, layout: str, number: int) -> None:
    """Change a field that the checksum covers, and the checksum with it, as a writer with a bug would."""
    data = bytearray(path.read_bytes())
    struct.pack_into(layout, data, at, number)
    stamp_crc(data, 0, read_header(data).size)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("at", "layout", "number", "says"),
    [
        (COUNT_AT, ">i", 2, "bytes follow the last of 2 records"),
        (COUNT_AT, ">i", 4, "4 records are announced, 3 are there"),
        (COUNT_AT, ">i", 2**30, "1073741824 records are announced, 3 are there"),
        (LAST_OFFSET_DELTA_AT, ">i", 1, "the offsets of its records do not rise from 0 to 1"),
        (LAST_OFFSET_DELTA_AT, ">i", 5, "base offset 3 comes where 6 was due"),
        (MAX_TIMESTAMP_AT, ">q", TIME + 1, f"a record has timestamp {TIME + 2}, the header says at most {TIME + 1}"),
        (ATTRIBUTES_AT, ">h", 1, "gzip"),
        (ATTRIBUTES_AT, ">h", 7, "unknown codec 7"),
        (ATTRIBUTES_AT, ">h", 0x20, "the key of a control record"),
    ],
)
def test_batches_that_a_wrong_writer_made(
    at: int, layout: str, number: int, says: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_first_batch(first_log(data), at, layout, number)
    reasons = verified(capsys, data)[f"{FIRST}.log"]
    assert any(says in reason for reason in reasons), reasons


def test_a_segment_that_is_missing(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segments = sorted((data / "orders-0").glob("*.log"))
    for path in (data / "orders-0").glob(f"{segments[1].stem}.*"):
        path.unlink()
    [(name, [reason])] = verified(capsys, data / "orders-0").items()
    assert name == segments[0].name
    first, following = int(segments[1].stem), int(segments[2].stem)
    assert reason.startswith(f"offsets {first} to {following - 1} are missing")


def test_a_segment_under_a_wrong_name(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = sorted((data / "orders-0").glob("*.log"))[-1]
    for path in (data / "orders-0").glob(f"{last.stem}.*"):
        path.rename(path.with_name(f"{int(last.stem) + 1:020d}{path.suffix}"))
    wrong = verified(capsys, data / "orders-0")
    assert f"base offset {int(last.stem)} comes where {int(last.stem) + 1} was due" in str(wrong)


def test_segments_that_overlap(small_partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = sorted(small_partition.glob("*.log"))[:2]
    one.write_bytes(one.read_bytes() + two.read_bytes())
    reasons = verified(capsys, small_partition)[one.name]
    assert f"it reaches offset 5, the next segment begins with {int(two.stem)}" in reasons


Change = Callable[[bytearray], None]


def add_to(position: int, number: int) -> Change:
    def change(data: bytearray) -> None:
        data[position] = data[position] + number & 0xFF

    return change


def repeat_last(size: int) -> Change:
    def change(data: bytearray) -> None:
        data += data[-size:]

    return change


@pytest.mark.parametrize(
    ("extension", "change", "says"),
    [
        (".index", add_to(3, 1), "entry 0: offset"),
        (".index", add_to(7, 1), "entry 0: no batch starts at byte"),
        (".index", add_to(-4, 1), "is not in the segment of"),
        (".index", repeat_last(8), "follows"),
        (".index", repeat_last(3), "are no whole number of entries of 8 bytes each"),
        (".timeindex", add_to(7, 1), "entry 0: timestamp"),
        (".timeindex", add_to(-4, 1), "is not in the segment"),
        (".timeindex", repeat_last(12), "follows"),
        (".timeindex", repeat_last(5), "are no whole number of entries of 12 bytes each"),
        (".txnindex", add_to(1, 1), "version 1"),
        (".txnindex", add_to(9, 1), "where the segment says"),
        (".txnindex", add_to(17, 1), "where the segment says"),
        (".txnindex", add_to(25, 1), "there is no ABORT at offset"),
        (".txnindex", add_to(33, 1), "where the segment says"),
        (".txnindex", repeat_last(34), "follows"),
        (".txnindex", repeat_last(2), "are no whole number of entries of 34 bytes each"),
    ],
)
def test_indexes_that_do_not_fit(
    extension: str, change: Change, says: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sorted((data / "orders-0").glob(f"*{extension}"))[0]
    changed = bytearray(path.read_bytes())
    change(changed)
    path.write_bytes(changed)
    [(name, reasons)] = verified(capsys, data / "orders-0").items()
    assert name == path.name
    assert any(says in reason for reason in reasons), reasons
    assert verified(capsys, path) == {name: reasons}


def test_an_aborted_transaction_that_the_index_lacks(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, last = sorted((data / "orders-0").glob("*.txnindex"))
    last.unlink()  # a log in use has these in memory
    assert verified(capsys, data / "orders-0") == {}
    first.unlink()
    [(name, [reason])] = verified(capsys, data / "orders-0").items()
    assert name == f"{first.stem}.log"
    assert "is not in the index" in reason


def test_an_index_without_its_segment(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stray = data / "orders-0" / "00000000000000000001.index"
    stray.write_bytes(b"")
    assert "there is no segment 00000000000000000001.log" in verified(capsys, data)[stray.name][0]


def test_the_entries_behind_damage_are_not_judged(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = first_log(data)
    damaged = bytearray(path.read_bytes())
    damaged[80] ^= 1
    path.write_bytes(damaged)
    assert main(["log", "verify", "--json", str(data / "orders-0")]) == 1
    files = [json.loads(line) for line in capsys.readouterr().out.splitlines()][:-1]
    assert [file["kind"] for file in files if not file["ok"]] == ["segment"]
    index = files[1]
    assert index["kind"] == "offset_index"
    assert index["facts"]["unchecked"] == index["facts"]["entries"] > 0


def change_producer(path: Path, producer_id: int, **changes: Any) -> None:
    producers = Producers()
    for known_id, producer in unpack_snapshot(path.read_bytes()):
        if known_id == producer_id:
            for name, value in changes.items():
                setattr(producer, name, value)
        producers.restore([(known_id, producer)])
    path.write_bytes(pack_snapshot(producers))


def test_snapshots_that_do_not_hold(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sorted((data / "orders-0").glob("*.snapshot"))[-1]
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert verified(capsys, data) == {path.name: ["the snapshot's checksum does not fit"]}
    path.write_bytes(good)
    change_producer(path, 11, epoch=4)
    assert "producer 11 is {'epoch': 4," in verified(capsys, path)[path.name][0]
    change_producer(path, 11, epoch=0, transaction_start=10_000)
    assert "producer 11 has written behind offset" in verified(capsys, path)[path.name][0]
    late = path.rename(path.with_name("00000000000000010000.snapshot"))
    assert any("the log ends at" in reason for reason in verified(capsys, data)[late.name])


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("recovery-point-offset-checkpoint", "1\n0\n", "version is '1'"),
        ("recovery-point-offset-checkpoint", "0\n2\norders 0 3\n", "'2' lines are announced, 1 are there"),
        ("replication-offset-checkpoint", "0\n1\norders 0\n", "not '<topic> <partition> <offset>'"),
        ("cleaner-offset-checkpoint", "0\n1\norders 0 -5\n", "are not negative"),
        ("recovery-point-offset-checkpoint", "0\n1\norders 0 9999\n", "the log of this partition ends at 64"),
        ("log-start-offset-checkpoint", "0\n1\norders 1 5\n", "the log of this partition ends at 0"),
        ("meta.properties", "version=7\n", "version is '7'"),
        ("meta.properties", "version=1\nnode.id=x\n", "node.id is 'x'"),
        ("meta.properties", "version 1\n", "not '<name>=<value>'"),
        ("orders-0/partition.metadata", "version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "version is '1'"),
        ("orders-0/leader-epoch-checkpoint", "0\n2\n0 0\n0 9\n", "epoch 0 from offset 9 follows epoch 0"),
        ("orders-0/leader-epoch-checkpoint", "0\n1\nx 0\n", "not '<epoch> <start offset>'"),
        ("orders-0/leader-epoch-checkpoint", "\xff", "not text"),
    ],
)
def test_small_files_that_do_not_hold(
    name: str, text: str, says: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = data / name
    path.write_bytes(text.encode("latin-1"))
    reasons = verified(capsys, data)
    assert list(reasons) == [path.name]
    assert says in reasons[path.name][0]


def test_checkpoints_that_kafka_has_not_filled_yet(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"):
        (data / name).write_bytes(b"")
    (data / "orders-1" / "leader-epoch-checkpoint").write_bytes(b"")
    assert verified(capsys, data) == {}


def test_an_epoch_that_begins_behind_the_end(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data / "orders-1" / "leader-epoch-checkpoint"
    path.write_text("0\n1\n3 7\n")
    assert verified(capsys, data) == {path.name: ["epoch 3 begins at 7, the log ends at 0"]}


def test_preallocated_indexes_of_a_killed_kafka(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = sorted((data / "orders-0").glob("*.log"))[-1].stem
    for extension, size in ((".index", 10_485_760), (".timeindex", 10_485_756)):
        path = data / "orders-0" / f"{last}{extension}"
        path.write_bytes(path.read_bytes().ljust(size, b"\0"))
    assert verified(capsys, data) == {}


# Compaction


def write_compacted(folder: Path, *, batch_size: int) -> Path:
    """A log of few keys that was compacted once: offsets are missing."""
    config = TopicConfig(cleanup_policy=("compact",), internal_segment_bytes=2000, index_interval_bytes=200)
    log = open_log(DiskFiles(), str(folder), config, now_ms=TIME)
    for number in range(60):
        keys = [f"key {(number * number + record) % 7}".encode() for record in range(batch_size)]
        values = [f"{number}".encode()] * batch_size
        append(log, build_batch(values, keys=keys, timestamp=TIME + number))
    log.advance_high_watermark(log.end_offset)
    log.flush(TIME)
    run_here(Compaction(log, cleanable(log, 0, TIME), TIME).run())
    log.close(TIME)
    for path in folder.glob("*.deleted"):
        path.unlink()
    return folder


def test_a_compacted_log_is_known_by_its_batches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verified(capsys, write_compacted(tmp_path / "keys-0", batch_size=3)) == {}


def test_missing_offsets_need_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where batches have one record each, compaction may leave no mark but the gaps."""
    folder = tmp_path / "keys-0"
    folder.mkdir()
    batches = [build_batch([b"v"], timestamp=TIME, base_offset=offset, leader_epoch=0) for offset in (0, 3, 4, 9)]
    (folder / f"{FIRST}.log").write_bytes(b"".join(batches))
    reasons = verified(capsys, folder)[f"{FIRST}.log"]
    remark = "which is right only where the topic is compacted"
    assert reasons == [f"offsets {missing} are missing, {remark}" for missing in ("1 to 2", "5 to 8")]
    assert verified(capsys, "--compacted", folder) == {}
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nkeys 0 4\n")
    assert verified(capsys, folder) == {}


# Flipped bits


def undetected_flips(folder: Path, path: Path) -> list[int]:
    """The bytes of a file in which some flipped bit is not found."""
    good = path.read_bytes()
    missed = []
    for position in range(len(good)):
        for bit in range(8):
            flipped = bytearray(good)
            flipped[position] ^= 1 << bit
            path.write_bytes(flipped)
            if all(report.is_ok for report in check_path(folder)):
                missed.append(position)
    path.write_bytes(good)
    return missed


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_flipped_bit_anywhere_in_a_segment_is_found(small_partition: Path, number: int) -> None:
    path = sorted(small_partition.glob("*.log"))[number]
    assert path.stat().st_size > 2 * 61
    assert undetected_flips(small_partition, path) == []


def test_in_a_compacted_log_only_offsets_can_change_unseen(tmp_path: Path) -> None:
    folder = write_compacted(tmp_path / "keys-0", batch_size=2)
    for path in folder.glob("*index"):  # they would find some of these flips, but not all logs have them
        path.unlink()
    path = folder / f"{FIRST}.log"
    starts = [position for position, _ in whole_batches(path.read_bytes())]
    within = {byte - max(start for start in starts if start <= byte) for byte in undetected_flips(folder, path)}
    assert within <= set(range(8))


# Progress


class Terminal:
    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("verb", ["verify", "dump"])
def test_long_work_shows_how_far_it_is(
    verb: str, written_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SHOWN_AFTER_SECONDS", -1)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    assert main(["log", verb, str(written_data)]) == 0
    assert f" %  {first_log(written_data)}" in terminal.text
    assert terminal.text.endswith("\r\x1b[K")
    assert " %  " not in capsys.readouterr().out


def test_a_copy_elsewhere_is_as_good(written_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copied = shutil.copytree(written_data / "orders-0", tmp_path / "anything")
    assert verified(capsys, copied) == {}


def test_an_epoch_in_the_file_that_the_batches_do_not_have_is_told_of_the_file(
    capsys: pytest.CaptureFixture[str], data: Path
) -> None:
    [path] = data.glob(f"*/{LEADER_EPOCHS}")
    path.write_text("0\n1\n9 0\n")
    wrong = {name: reasons for name, reasons in verified(capsys, data).items() if reasons}
    assert list(wrong) == [LEADER_EPOCHS]
    assert "batches contradict it, the first: leader epoch 0 at offset 0" in wrong[LEADER_EPOCHS][0]
