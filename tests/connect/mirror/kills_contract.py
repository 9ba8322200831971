"""Runners of a mirror that are killed while records come, whatever the two clusters are."""

from __future__ import annotations

import contextlib
import random
import threading
import uuid
from pathlib import Path

from ottla.client import Admin, NewRecord, NewTopic, Producer
from tests.connect.mirror.mirroring import write_mirror
from tests.connect.running import RunnerProcess, records_of, until, values_of

PARTITIONS = 3


class Writer(threading.Thread):
    """Numbered records to all partitions until it is stopped; transactions, every fourth of them aborted."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.committed: list[bytes] = []
        self._source, self._topic = bootstrap, topic

    def run(self) -> None:
        with Producer(self._source, transactional_id=self._topic, codec="lz4") as producer:
            number = 0
            while not self.stopping.wait(0.01):
                values = [f"{number + one}".encode() for one in range(20)]
                number += 20
                is_aborted = number % 80 == 0
                with contextlib.suppress(ZeroDivisionError), producer.transaction():
                    records = [NewRecord(value, partition=int(value) % PARTITIONS) for value in values]
                    producer.send_many(self._topic, records)
                    _ = 1 // (not is_aborted)
                if not is_aborted:
                    self.committed += values


class MirrorKillsContract:
    kills = 2
    session_timeout_ms = 6_000
    """Apache Kafka takes no less."""

    def test_each_record_is_copied_once_in_its_order(self, source: str, target: str, tmp_path: Path) -> None:
        topic = f"orders-{uuid.uuid4().hex[:8]}"
        name = f"mirror-{topic}"
        chance = random.Random(7)
        with Admin(source) as admin:
            admin.create_topics([NewTopic(topic, PARTITIONS)])
        file = write_mirror(
            tmp_path / "mirror.toml",
            source,
            target,
            [topic],
            name=name,
            tasks=2,
            session_timeout_ms=self.session_timeout_ms,
        )
        writer = Writer(source, topic)
        writer.start()
        try:
            for _ in range(self.kills):
                with RunnerProcess(file, "mirror") as runner:
                    until(runner.runs)
                    threading.Event().wait(chance.random())
        finally:
            writer.stopping.set()
            writer.join(60)
        assert writer.committed
        with RunnerProcess(file, "mirror") as runner:
            until(lambda: len(values_of(target, topic)) >= len(writer.committed))
            runner.stop()
        originals, copies = records_of(source, topic), records_of(target, topic)
        assert [(copy.value, copy.timestamp) for copy in copies] == [(one.value, one.timestamp) for one in originals]
        assert sorted(copy.value for copy in copies) == sorted(writer.committed)
