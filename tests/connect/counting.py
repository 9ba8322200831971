"""Connectors for tests: a source that counts, and sinks that keep what they get in a file of lines."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ottla.connect import BadRecord, ConnectorRefused, Sink, SinkBatch, Source, SourceRecord, Task
from ottla.connect.interface import Yielded


class Counting(Source):
    """Each task counts to `end`. `pause_ms` after each batch; `fail_at` raises there as long as `flag` is a file."""

    def __init__(
        self, *, topic: str, end: int, batch: int = 10, pause_ms: int = 0, fail_at: int | None = None,
        flag: str | None = None, bad_at: int | None = None, refuse: bool = False,
    ) -> None:  # fmt: skip
        self.topic, self.end, self.batch, self.pause_ms = topic, end, batch, pause_ms
        self.fail_at, self.flag, self.bad_at, self.refuse = fail_at, flag, bad_at, refuse

    def read(self, task: Task, position: Any) -> Iterator[Yielded]:
        if self.refuse:
            raise ConnectorRefused("it does not want to")
        task.create_topic(self.topic, partitions=1)
        at = position or 0
        while True:
            if at >= self.end:
                yield None
                if task.wait(0.05):
                    return
                continue
            numbers = range(at, min(at + self.batch, self.end))
            if self.fail_at in numbers and (self.flag is None or Path(self.flag).exists()):
                raise OSError("the source is away")
            at = numbers.stop
            yield [self._record(task, number) for number in numbers], at
            if self.pause_ms:
                time.sleep(self.pause_ms / 1000)

    def _record(self, task: Task, number: int) -> SourceRecord:
        value = b"%d/%d" % (task.number, number)
        problem = "a bad number" if number == self.bad_at else None
        return SourceRecord(self.topic, value, b"%d" % task.number, problem=problem)


class Lines(Sink):
    """Appends values to a file; does not store offsets."""

    def __init__(self, *, path: str, bad: str | None = None, pause_ms: int = 0) -> None:
        self.path, self.bad, self.pause_ms = path, bad, pause_ms

    def write(self, batch: SinkBatch) -> None:
        for record in batch.records:
            if self.bad is not None and record.value == self.bad.encode():
                raise BadRecord(record.offset, "this one is bad")
        with Path(self.path).open("ab") as stream:
            stream.write(b"".join(record.value + b"\n" for record in batch.records))
            stream.flush()
            os.fsync(stream.fileno())
        time.sleep(self.pause_ms / 1000)
