"""`ottla log dump`: what it shows of each kind of file."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.log_dump import SHORT_CHARACTERS, shown_bytes
from ottla.cli.main import main
from ottla.cli.record_text import iso_time
from ottla.records.build import build_batch
from tests.cli.partitions import TIME, contents

FIRST = "00000000000000000000"


def dumped(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> list[str]:
    assert main(["log", "dump", *map(str, arguments)]) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


def dumped_json(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in dumped(capsys, "--json", *arguments, code=code)]


def test_batches_one_a_line(written_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written_data / "orders-0" / f"{FIRST}.log"
    title, heading, first, second, *_ = dumped(capsys, path)
    assert title == f"{path}: segment"
    assert heading.split() == ["offsets", "position", "bytes", "records", "epoch", "latest", "record", "about"]
    position = int(second.split()[1])
    assert first.split() == ["0-2", "0", str(position), "3", "0", "2023-11-14T22:13:20.002Z"]
    assert second.split()[0] == "3-5"
    assert second.split()[-1] == "gzip"


def test_a_batch_for_programs(written_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = dumped_json(capsys, written_data / "orders-0")
    batches = [row for row in rows if row["type"] == "batch"]
    size_bytes, crc = batches[0].pop("size_bytes"), batches[0].pop("crc")
    assert size_bytes == batches[1]["position"]
    assert crc > 0
    assert batches[0] == {
        "type": "batch",
        "path": str(written_data / "orders-0" / f"{FIRST}.log"),
        "position": 0,
        "base_offset": 0,
        "last_offset": 2,
        "count": 3,
        "leader_epoch": 0,
        "base_timestamp": TIME,
        "max_timestamp": TIME + 2,
        "max_time": "2023-11-14T22:13:20.002Z",
        "timestamp_type": "create",
        "codec": "none",
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "last_sequence": -1,
        "is_transactional": False,
        "is_control": False,
        "controls": None,
        "delete_horizon_ms": None,
    }
    assert [batch["codec"] for batch in batches[:5]] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [batch["controls"] for batch in batches if batch["is_control"]] == [["ABORT"], ["COMMIT"], ["ABORT"]]
    assert sum(batch["is_transactional"] for batch in batches) == 6


def test_facts_about_a_batch_for_people(written_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = dumped(capsys, written_data / "orders-0")
    about = [line.split("Z  ", 1)[1] for line in lines if "Z  " in line and "epoch" in line and "last" not in line]
    assert "transactional, producer 7 epoch 0, sequence 0-1" in about
    assert "ABORT, producer 8 epoch 0" in about
    assert "COMMIT, producer 7 epoch 0" in about
    assert "producer 11 epoch 0, sequence 3-3" in about


def test_records(written_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written_data / "orders-0" / f"{FIRST}.log"
    lines = dumped(capsys, "--records", "--limit", 3, path)
    assert [line.strip() for line in lines[3:]] == [
        '0  2023-11-14T22:13:20.000Z  "text": "order 0"  ["trace": "1", "none": null]',
        f"1  2023-11-14T22:13:20.001Z  0xfe: 0x{'00ff' * 19}00... (200 bytes)",
        "2  2023-11-14T22:13:20.002Z  null: null",
        "",
    ]


def test_records_for_programs(written_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written_data / "orders-0" / f"{FIRST}.log"
    records = [row for row in dumped_json(capsys, "--records", path) if row["type"] == "record"]
    assert [record["offset"] for record in records] == list(range(len(records)))
    assert records[0] == {
        "type": "record",
        "path": str(path),
        "offset": 0,
        "timestamp": TIME,
        "time": "2023-11-14T22:13:20.000Z",
        "key": "text",
        "value": "order 0",
        "headers": [["trace", "1"], ["none", None]],
    }
    assert records[1]["key"] == {"base64": "/g=="}
    assert records[2]["key"] is records[2]["value"] is None


def test_full_shows_long_values_whole(written_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = dumped(capsys, "--records", "--full", "--offset", "1-1", written_data / "orders-0")
    assert lines[3].endswith("0xfe: 0x" + "00ff" * 100)


def test_offsets_choose_files_batches_records_and_entries(
    written_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = dumped_json(capsys, "--records", "--offset", "4-6", written_data)
    assert [row["offset"] for row in rows if row["type"] == "record"] == [4, 5, 6]
    assert [row["base_offset"] for row in rows if row["type"] == "batch"] == [3, 6]
    assert {row["type"] for row in rows} <= {"record", "batch", "index_entry", "time_index_entry"}
    everything = dumped_json(capsys, written_data / "orders-0")
    last_offset = max(row["last_offset"] for row in everything if row["type"] == "batch")
    rows = dumped_json(capsys, "--offset", last_offset - 1, written_data)
    assert min(row["last_offset"] for row in rows if row["type"] == "batch") == last_offset - 1
    # The last abort ended a transaction that began long before.
    assert [row["last_offset"] for row in rows if row["type"] == "aborted_transaction"] == [last_offset]


def test_the_limit_is_of_each_file(written_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = dumped_json(capsys, "--limit", 1, written_data / "orders-0")
    paths = [row["path"] for row in rows]
    assert len(paths) == len(set(paths)) > 5


def test_the_small_files(written_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = dumped_json(capsys, written_data)
    by_type: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_type.setdefault(row["type"], []).append(row)
    end_offset = max(row["last_offset"] for row in by_type["batch"]) + 1
    assert [row["epoch"] for row in by_type["leader_epoch"]] == [0, 1, 2, 3]
    assert [row["start_offset"] for row in by_type["leader_epoch"]][:2] == [0, 30]
    checkpoints = {(row["topic"], row["partition"]): row["offset"] for row in by_type["checkpoint"]}
    assert checkpoints == {("orders", 0): end_offset}
    assert {row["topic_id"] for row in by_type["partition_metadata"]} == {"AAECAwQFBgcICQoLDA0ODw"}
    newest = [row for row in by_type["producer"] if f"{end_offset:020d}" in row["path"]]
    assert [row["producer_id"] for row in newest] == [7, 8, 9, 11]
    assert {row["producer_id"]: row["first_offset"] for row in by_type["aborted_transaction"]} == {8: 47, 9: 49}
    assert all(row["offset"] >= 0 for row in by_type["index_entry"] + by_type["time_index_entry"])


def test_every_kind_of_row_can_be_shown_to_people(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "meta.properties").write_text("# a comment\nversion=1\nnode.id=3\ncluster.id=abc\n")
    text = "\n".join(dumped(capsys, "--records", data))
    assert "    cluster.id = abc\n" in text
    assert "    topic id AAECAwQFBgcICQoLDA0ODw  00010203-0405-0607-0809-0a0b0c0d0e0f\n" in text
    assert "    epoch 1  from offset 30\n" in text
    assert "    producer 9  offsets 49-63  last stable offset 64\n" in text
    assert "open transaction from 49" in text


def test_damage_is_shown_where_it_is_and_what_follows_too(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data / "orders-0" / f"{FIRST}.log"
    batches = dumped_json(capsys, path)
    position = batches[1]["position"]
    damaged = bytearray(path.read_bytes())
    damaged[position + 70] ^= 1
    path.write_bytes(damaged)
    rows = dumped_json(capsys, path, code=1)
    assert rows[1].items() >= {"type": "fault", "position": position}.items()
    assert "checksum" in rows[1]["reason"]
    assert [*rows[:1], *rows[2:]] == [*batches[:1], *batches[2:]]
    assert any(line.startswith(f"DAMAGED  byte {position}: checksum") for line in dumped(capsys, path, code=1))


def test_the_preallocated_rest_of_an_index_is_no_entry(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As Kafka leaves its indexes when it is killed."""
    index, times = (data / "orders-0" / f"{FIRST}{kind}" for kind in (".index", ".timeindex"))
    before = dumped_json(capsys, index, times)
    index.write_bytes(index.read_bytes().ljust(10_485_760, b"\0"))
    times.write_bytes(times.read_bytes().ljust(10_485_756, b"\0"))
    assert dumped_json(capsys, index, times) == before
    index.write_bytes(bytes(10_485_760))
    assert dumped_json(capsys, index) == []


def test_control_records_of_a_cluster_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{FIRST}.log"
    path.write_bytes(
        build_batch([b"\0"], keys=[struct.pack(">hh", 0, 2)], timestamp=TIME, is_control=True, leader_epoch=1)
    )
    assert [row["controls"] for row in dumped_json(capsys, path)] == [["LEADER_CHANGE"]]
    assert dumped(capsys, path)[2].endswith("LEADER_CHANGE")


def test_nothing_is_written(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "orders-0" / f"{FIRST}.index").unlink()
    before = contents(data)
    dumped(capsys, "--records", data)
    assert contents(data) == before


def test_a_segment_that_is_about_to_go_can_be_shown_by_its_name(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data / "orders-0" / f"{FIRST}.log"
    expected = dumped_json(capsys, path)
    doomed = path.rename(path.with_name(path.name + ".deleted"))
    rows = dumped_json(capsys, doomed)
    assert [row | {"path": ""} for row in rows] == [row | {"path": ""} for row in expected]
    assert dumped_json(capsys, "--offset", "0-3", data / "orders-0", "--limit", 1) == []


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (b"", '""'),
        (b"two\nlines", r'"two\nlines"'),
        ("čau".encode(), '"čau"'),
        (b"\x1b[2J", "0x1b5b324a"),
        ("\u202ebidi".encode(), "0xe280ae62696469"),
        (b"\xff", "0xff"),
    ],
)
def test_bytes_as_people_see_them(value: bytes | None, shown: str) -> None:
    assert shown_bytes(value, full=False) == shown


def test_long_bytes_are_cut() -> None:
    assert shown_bytes(b"a" * 1000, full=False) == '"' + "a" * (SHORT_CHARACTERS - 1) + "... (1,000 bytes)"
    assert shown_bytes(b"a" * 1000, full=True) == '"' + "a" * 1000 + '"'


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [(0, "1970-01-01T00:00:00.000Z"), (TIME + 7, "2023-11-14T22:13:20.007Z"), (-1, None), (2**62, None)],
)
def test_times(timestamp: int, shown: str | None) -> None:
    assert iso_time(timestamp) == shown
