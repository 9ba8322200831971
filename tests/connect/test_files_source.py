"""The files source by itself: rows and files that it cannot take are told, each with a sentence."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.connect import ConnectorRefused, SourceRecord, Task
from ottla.connect.files_source import FilesSource


def first_records(path: Path, **settings: Any) -> list[SourceRecord]:
    """Nothing where the source waits for more."""
    source = FilesSource(path=str(path), topic="t", format="parquet", poll_ms=1, **settings)
    yielded = next(iter(source.read(Task("c", create_topic=lambda *_, **__: None), None)))
    records = [] if yielded is None else yielded[0]
    return [record for record in records if isinstance(record, SourceRecord)]


@pytest.mark.parametrize(
    ("columns", "key", "problem"),
    [
        ({"a": [1]}, ["id"], "a row has no column 'id'"),
        ({"a": [timedelta(1)]}, None, "a row is no record: a value of type timedelta has no place in a change event"),
    ],
)
def test_a_row_that_is_no_record_is_told(tmp_path: Path, columns: Any, key: list[str] | None, problem: str) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), file)
    [record] = first_records(file, key=key)
    assert record.problem == f"{file}: {problem}"


def test_a_parquet_file_that_is_damaged_is_told_and_one_that_is_being_written_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": [1]}), file)
    whole = file.read_bytes()
    for written in (0, 3, len(whole) - 1):
        file.write_bytes(whole[:written])
        assert first_records(file) == []
    file.write_bytes(whole[:-12] + b"x" * 8 + whole[-4:])
    with pytest.raises(ConnectorRefused, match="is no Parquet file: "):
        first_records(file)
    file.write_bytes(whole)
    assert [record.value for record in first_records(file)] == [b'{"a":1}']


def test_a_time_that_python_has_none_for_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"at": pa.array([0, 10**18, 0], pa.timestamp("us"))}), file)
    records = first_records(file)
    assert [record.problem is None for record in records] == [True, False, True]
    assert records[1].problem == f"{file}: a row is no record: date value out of range"


def test_a_file_that_is_replaced_while_it_is_read_is_told(tmp_path: Path) -> None:
    """What was read of the old one was taken for the new one, whose lines were passed over."""
    file = tmp_path / "lines.jsonl"
    file.write_text('{"n": 1}\n')
    source = FilesSource(path=str(file), topic="t", poll_ms=1)
    task = Task("c", create_topic=lambda *_, **__: None)
    reading = iter(source.read(task, None))
    old_open, moved = open, tmp_path / "moved"

    def open_and_replace(*arguments: Any) -> Any:
        stream = old_open(*arguments)
        if not moved.exists():
            file.rename(moved)
            file.write_text('{"n": 2}\n{"n": 3}\n')
        return stream

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.open", open_and_replace)
        yielded: Any = next(reading)
    assert [record.value for record in yielded[0]] == [b'{"n": 1}']
    with pytest.raises(ConnectorRefused, match="is not the file that was read before"):
        next(reading)
