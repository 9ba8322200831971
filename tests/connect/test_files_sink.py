"""The files sink by itself: of two writers one is fenced, and neither a crash nor a full disk leaves anything wrong."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from ottla.client import TopicPartition
from ottla.connect import BadRecord, ConnectorRefused, Fenced, Task, files_sink
from ottla.connect.files_sink import FilesSink
from tests.connect.test_sinks import batch


def test_of_two_writers_of_files_one_is_fenced(tmp_path: Path) -> None:
    place = TopicPartition("t", 0)
    one, other = FilesSink(path=str(tmp_path)), FilesSink(path=str(tmp_path))
    for sink in (one, other):
        sink.open(Task("c"))
    one.write(batch([b"1"], -1))
    with pytest.raises(Fenced):
        other.write(batch([b"1", b"2"], -1))
    assert other.stored_offsets([place]) == {place: 1}
    for start in range(1, 6):
        one.write(batch([b"%d" % (start + 1)], start))
    with pytest.raises(Fenced):  # its claim is forgotten already
        other.write(batch([b"2"], 1))
    assert other.stored_offsets([place]) == {place: 6}
    assert [line for file in sorted(tmp_path.glob("*.jsonl")) for line in file.read_text().split()] == list("123456")


def test_files_of_before_a_reset_are_not_replaced(tmp_path: Path) -> None:
    """A topic that was created again has other records under the same offsets."""
    sink = FilesSink(path=str(tmp_path))
    sink.open(Task("c"))
    sink.write(batch([b'"old"'], -1))
    sink.forget_offsets()
    with pytest.raises(ConnectorRefused, match="is there already, of what was read before: move the files of this"):
        sink.write(batch([b'"new"'], -1))
    (file,) = tmp_path.glob("*.jsonl")
    assert file.read_text() == '"old"\n'
    assert list(tmp_path.glob(".*")) == []
    file.unlink()
    sink.write(batch([b'"new"'], -1))
    assert file.read_text() == '"new"\n'


@pytest.mark.parametrize("step", ["link", "fsync"])
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """What each attempt left would fill the disk further, and keep it full."""
    sink = FilesSink(path=str(tmp_path))
    sink.open(Task("c"))
    sink.write(batch([b"1"], -1))
    there = set(tmp_path.rglob("*"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, step, full)
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                sink.write(batch([b"2"], 1))
    assert set(tmp_path.rglob("*")) == there
    sink.write(batch([b"2"], 1))
    assert [file.read_text() for file in sorted(tmp_path.glob("*.jsonl"))] == ["1\n", "2\n"]


def test_a_crash_between_claim_and_name_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = TopicPartition("t", 0)
    sink = FilesSink(path=str(tmp_path))
    sink.open(Task("c"))
    with monkeypatch.context() as patched:
        patched.setattr(FilesSink, "_finish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sink.write(batch([b"1", b"2"], -1))
    assert list(tmp_path.glob("*.jsonl")) == []
    assert FilesSink(path=str(tmp_path)).stored_offsets([place]) == {place: 2}
    (file,) = tmp_path.glob("*.jsonl")
    assert file.read_text() == "1\n2\n"


def test_a_row_that_does_not_fit_is_found_by_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, a batch of small rows took so long that another runner was given it, and then the next."""
    sink = FilesSink(path=str(tmp_path / "out"), format="parquet")
    sink.open(Task("c"))
    written = []
    write = files_sink._write_parquet

    def count(rows: Any, target: Any) -> None:
        written.append(len(rows))
        write(rows, target)

    monkeypatch.setattr(files_sink, "_write_parquet", count)
    with pytest.raises(BadRecord) as bad:
        sink.write(batch([b'{"n": 1}'] * 999 + [b'{"n": "x"}'] + [b'{"n": 1}'] * 1000, -1))
    assert bad.value.offset == 999
    assert len(written) < 20
