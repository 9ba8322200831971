"""A batch that has rotted on the source: whatever the target is, the copy ends before it, and the damage is told."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from ottla import testing
from ottla.client import Admin, Producer, TopicPartition
from ottla.records.batch import whole_batches
from tests.connect.mirror.mirroring import failed_with, mirroring
from tests.connect.running import until, values_of

BATCHES, RECORDS = 5, 10
SPOILT = 2
"""The number of the batch."""


def spoil(log: Path, byte: int, mask: int, number: int = SPOILT) -> None:
    """Done twice it is undone."""
    starts = [position for position, _ in whole_batches(log.read_bytes())]
    with log.open("r+b") as file:
        file.seek(starts[number] + byte)
        [value] = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([value ^ mask]))


class MirrorDamageContract:
    session_timeout_ms = 6_000
    """Apache Kafka takes no less."""

    @pytest.mark.parametrize(
        ("byte", "mask", "told"),
        [
            pytest.param(80, 4, "a damaged batch at or behind offset 20: checksum is", id="a value"),
            pytest.param(22, 0x20, "a damaged batch at or behind offset 20: checksum is", id="a transaction ends"),
            pytest.param(23, 0x80, "a damaged batch at or behind offset 20: the broker cannot", id="its last offset"),
            pytest.param(9, 4, "a damaged batch at or behind offset 20: the broker cannot", id="its length"),
        ],
    )
    def test_what_has_rotted_is_told(self, target: str, tmp_path: Path, byte: int, mask: int, told: str) -> None:
        topic = f"orders-{uuid.uuid4().hex[:8]}"
        place = TopicPartition(topic, 0)
        sent = [f"{number:030}".encode() for number in range(BATCHES * RECORDS)]
        settings = {"name": topic, "session_timeout_ms": self.session_timeout_ms, "retries": 1, "backoff_ms": 10}
        with testing.broker() as source:
            source.topic(topic)
            with Producer(source.bootstrap) as producer:
                for number in range(BATCHES):
                    producer.send_many(topic, sent[number * RECORDS : (number + 1) * RECORDS])
            spoil(Path(source.folder) / f"{topic}-0" / f"{0:020}.log", byte, mask)
            sound = SPOILT * RECORDS
            with mirroring(tmp_path, source.bootstrap, target, [topic], **settings):
                assert told in failed_with(target, topic)
            assert values_of(target, topic) == sent[:sound]
            behind = sound + RECORDS
            with Admin(source.bootstrap) as admin:
                admin.delete_records({place: behind})
            with mirroring(tmp_path, source.bootstrap, target, [topic], lost="skip", **settings):
                until(lambda: len(values_of(target, topic)) >= len(sent) - RECORDS)
            assert values_of(target, topic) == sent[:sound] + sent[behind:]
