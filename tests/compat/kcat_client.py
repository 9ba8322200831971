"""kcat, a process for each thing that is asked."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.compat.client import WAIT_S, Fetched, Headers, Record

FORMAT = "%o %T %K %S %h\n%k%s"
EARLIEST, LATEST = -2, -1


def is_installed() -> bool:
    return shutil.which("kcat") is not None


class KcatClient:
    """It cannot set timestamps, nor write what is null; a topic it writes to is created by the broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        pass

    def _run(self, *arguments: str) -> bytes:
        command = ["kcat", "-q", "-b", self._bootstrap, *arguments]
        ended = subprocess.run(command, capture_output=True, timeout=WAIT_S, stdin=subprocess.DEVNULL)
        assert ended.returncode == 0, ended.stderr.decode()
        return ended.stdout

    def write(self, topic: str, partition: int, records: Sequence[Record], *, codec: str, acks: int) -> None:
        for record in records:
            self._write(record, "-t", topic, "-p", str(partition), "-z", codec, "-X", f"acks={acks}")

    def _write(self, record: Record, *arguments: str) -> None:
        """A file is sent as one message, whatever bytes it has."""
        assert record.value is not None
        key = () if record.key is None else ("-k", record.key.decode())
        headers = [part for name, value in record.headers for part in ("-H", f"{name}={(value or b'').decode()}")]
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(record.value)
            self._run("-P", *arguments, *key, *headers, file.name)

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Fetched]:
        place = ("-t", topic, "-p", str(partition), "-o", str(offset), "-c", str(count))
        data = self._run("-C", *place, "-f", FORMAT)
        fetched = []
        while data:
            line, _, data = data.partition(b"\n")
            number, timestamp_ms, key_bytes, value_bytes, headers = line.decode().split(" ", 4)
            key, data = _taken(data, int(key_bytes))
            value, data = _taken(data, int(value_bytes))
            fetched.append(Fetched(int(number), Record(key, value, int(timestamp_ms), _headers(headers))))
        return fetched

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        return self._query(topic, partition, EARLIEST), self._query(topic, partition, LATEST)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        offset = self._query(topic, partition, timestamp_ms)
        return offset if offset >= 0 else None

    def _query(self, topic: str, partition: int, timestamp_ms: int) -> int:
        answer = self._run("-Q", "-t", f"{topic}:{partition}:{timestamp_ms}").decode()
        return int(answer.split()[-1])  # "topic [0] offset 5"

    def partition_counts(self) -> dict[str, int]:
        topics = json.loads(self._run("-L", "-J"))["topics"]
        return {topic["topic"]: len(topic["partitions"]) for topic in topics}


def _taken(data: bytes, size_bytes: int) -> tuple[bytes | None, bytes]:
    """Bytes off the front; a size of -1 is null."""
    return (None, data) if size_bytes < 0 else (data[:size_bytes], data[size_bytes:])


def _headers(text: str) -> Headers:
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return tuple((name, value.encode()) for name, _, value in pairs)
