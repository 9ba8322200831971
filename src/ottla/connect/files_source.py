"""`files-source`: every line of JSON lines files, or every row of Parquet files, becomes a record.

Files are read in the order of their names; a JSON lines file may grow, a Parquet file is read once. The position holds,
for each file, how far it is read and a checksum of its beginning: a file that is not what it was is refused.
"""

from __future__ import annotations

import glob
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Literal

from ottla.connect.interface import ConnectorRefused, Finding, Source, SourceRecord, Task, Yielded
from ottla.connect.topics import check_topic_name
from ottla.pipelines.tables.event import to_json

HEAD_BYTES = 1024
READ_BYTES = 1 << 20
PARQUET_ROWS = 2_000
PARQUET_END = b"PAR1"
LONGEST_LINE_BYTES = 64 << 20
Place = list[int]
"""How far a file is read, in bytes or rows; how many bytes of its beginning were seen, and their checksum."""


class FilesSource(Source):
    """`path` is a file or a pattern (`in/*.jsonl`). `key` names the fields that make the record's key."""

    def __init__(
        self, *, path: str, topic: str, format: Literal["jsonl", "parquet"] = "jsonl",
        key: list[str] | None = None, poll_ms: int = 1000,
    ) -> None:  # fmt: skip
        """ValueError for settings that cannot be."""
        check_topic_name("topic", topic)
        if not path:
            raise ValueError("path is empty: it names a file, or a pattern as in/*.jsonl")
        if poll_ms < 1:
            raise ValueError(f"poll_ms is at least 1, not {poll_ms}")
        self._path = path
        self._topic = topic
        self._format = format
        self._key = key or []
        self._poll_ms = poll_ms

    def check(self) -> Iterable[Finding]:
        files = self._files()
        if not files:
            yield Finding(f"{self._path}: there is no such file yet")
        for file in files:
            if not os.access(file, os.R_OK):
                yield Finding(f"{file}: may not be read", is_problem=True)
        yield Finding(f"{self._path}: {len(files)} files")

    def read(self, task: Task, position: Any) -> Iterator[Yielded]:
        places: dict[str, Place] = dict(position or {})
        task.create_topic(self._topic)
        read = self._read_lines if self._format == "jsonl" else self._read_rows
        while True:
            found = False
            for file in self._files():
                if zlib.crc32(file.encode()) % task.count != task.number:
                    continue
                for records, place in read(file, places.get(file)):
                    places = places | {file: place}
                    found = True
                    yield records, places
            if not found:
                yield None
                if task.wait(self._poll_ms / 1000):
                    return

    def _files(self) -> list[str]:
        return sorted(name for name in glob.glob(self._path, recursive=True) if Path(name).is_file())  # noqa: PTH207 - absolute, too

    # JSON lines.

    def _read_lines(self, file: str, place: Place | None) -> Iterator[tuple[list[SourceRecord], Place]]:
        """Whole lines only: what has no end yet is being written."""
        with open(file, "rb") as stream:
            offset = self._found_again(file, stream.read(HEAD_BYTES), place)
            if os.fstat(stream.fileno()).st_size < offset:
                raise ConnectorRefused(f"{file}: is shorter than what was read of it before; {_ADVICE}")
            rest = b""
            stream.seek(offset)
            while block := stream.read(READ_BYTES):
                whole, newline, rest = (rest + block).rpartition(b"\n")
                if not newline:
                    if len(rest) > LONGEST_LINE_BYTES:
                        raise ConnectorRefused(f"{file}: a line is longer than {LONGEST_LINE_BYTES:,} bytes")
                    continue
                records = [self._record(file, line) for line in whole.split(b"\n") if line.strip()]
                offset += len(whole) + 1
                yield records, [offset, *_head(stream)]

    def _record(self, file: str, line: bytes) -> SourceRecord:
        line = line.rstrip(b"\r")
        try:
            document = json.loads(line)
            return SourceRecord(self._topic, line, self._key_of(document))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            reason = (
                f"has no field {error}" if isinstance(error, KeyError) else f"is no JSON object with a key: {error}"
            )
            if not self._key:
                reason = f"is no JSON: {error}"
            return SourceRecord(self._topic, line, problem=f"{file}: a line {reason}")

    def _key_of(self, document: Any) -> bytes | None:
        return to_json({name: document[name] for name in self._key}) if self._key else None

    # Parquet.

    def _read_rows(self, file: str, place: Place | None) -> Iterator[tuple[list[SourceRecord], Place]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with open(file, "rb") as stream:
            begin = self._found_again(file, stream.read(HEAD_BYTES), place)
            try:
                parquet = pq.ParquetFile(stream)
            except pa.ArrowInvalid as error:
                if place is None and not _has_end(file):
                    return  # it may be being written: a Parquet file is whole when its end is there
                again = "" if place is None else " any more"
                raise ConnectorRefused(f"{file}: is no Parquet file{again}: {error}") from None
            if begin >= parquet.metadata.num_rows:
                return
            row = 0
            for batch in parquet.iter_batches(PARQUET_ROWS):
                row += batch.num_rows
                if row <= begin:
                    continue
                rest = batch.slice(max(0, batch.num_rows - (row - begin)))
                yield self._records_of(file, rest), [row, *_head(stream)]

    def _records_of(self, file: str, rows: Any) -> list[SourceRecord]:
        """Of a batch of Arrow. Times may be there that Python has none for: then each row is looked at."""
        try:
            return [self._record_of_row(file, row) for row in rows.to_pylist()]
        except (ValueError, OverflowError) as error:
            if rows.num_rows == 1:
                told = str(rows.to_struct_array()).encode()
                return [SourceRecord(self._topic, told, problem=f"{file}: a row is no record: {error}")]
        halves = rows.slice(0, rows.num_rows // 2), rows.slice(rows.num_rows // 2)
        return [record for half in halves for record in self._records_of(file, half)]

    def _record_of_row(self, file: str, row: dict[str, Any]) -> SourceRecord:
        try:
            return SourceRecord(self._topic, to_json(row), self._key_of(row))
        except (KeyError, ValueError) as error:
            reason = f"has no column {error}" if isinstance(error, KeyError) else f"is no record: {error}"
            return SourceRecord(self._topic, repr(row).encode("utf-8", "replace"), problem=f"{file}: a row {reason}")

    def _found_again(self, file: str, head: bytes, place: Place | None) -> int:
        """Where to go on. A file whose beginning is another one was replaced under its name."""
        if place is None:
            return 0
        offset, head_bytes, checksum = place
        if len(head) < head_bytes or zlib.crc32(head[:head_bytes]) != checksum:
            raise ConnectorRefused(f"{file}: is not the file that was read before; {_ADVICE}")
        return offset


_ADVICE = "give new contents a new name, or forget what was read with 'ottla connect reset'"


def _has_end(file: str) -> bool:
    """Of a Parquet file: it says so there."""
    with Path(file).open("rb") as stream:
        stream.seek(-min(len(PARQUET_END), stream.seek(0, os.SEEK_END)), os.SEEK_END)
        return stream.read() == PARQUET_END


def _head(stream: IO[bytes]) -> tuple[int, int]:
    """Of the file that is read, whatever has its name by now."""
    head = os.pread(stream.fileno(), HEAD_BYTES, 0)
    return len(head), zlib.crc32(head)
