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
