"""A batch that has rotted on the source, with Ottla as the target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import testing
from ottla.client import Admin, NewRecord, NewTopic, Producer
from tests.connect.mirror.damage_contract import MirrorDamageContract, spoil
from tests.connect.mirror.mirroring import failed_with, mirroring
from tests.connect.running import until, values_of

BATCHES, SPOILT = 22, 17
VALUE_BYTES = 300_000  # so that the damage is in the second portion that is fetched


class TestMirrorDamage(MirrorDamageContract):
    @pytest.fixture
    def target(self) -> Iterator[str]:
        with testing.broker() as broker:
            yield broker.bootstrap


def test_what_is_fetched_beside_damage_of_a_compacted_topic_is_copied_later(tmp_path: Path) -> None:
    """The portion with the damage fails, and the one before it is committed: its position must not be behind both."""
    settings = {"retries": 0, "transaction_ms": 60_000}
    with testing.broker() as source, testing.broker() as target:
        with Admin(source.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 2, configs={"cleanup.policy": "compact"})])
        with Producer(source.bootstrap) as producer:
            for number in range(BATCHES):
                for partition in (0, 1):
                    name = b"%d-%02d" % (partition, number)
                    producer.send_many("t", [NewRecord(name.ljust(VALUE_BYTES), name, partition=partition)])
        log = Path(source.folder) / "t-0" / f"{0:020}.log"
        spoil(log, 80, 4, SPOILT)
        with mirroring(tmp_path, source.bootstrap, target.bootstrap, ["t"], **settings):
            assert f"damaged batch at or behind offset {SPOILT}" in failed_with(target.bootstrap)
        copied = [value[:4] for value in values_of(target.bootstrap, "t") if value.startswith(b"0")]
        assert copied == [b"0-%02d" % number for number in range(SPOILT - 1)]
        spoil(log, 80, 4, SPOILT)  # as if a replica without the damage led
        with mirroring(tmp_path, source.bootstrap, target.bootstrap, ["t"], **settings):
            until(lambda: len(values_of(target.bootstrap, "t")) >= 2 * BATCHES)
        values = [value[:4] for value in values_of(target.bootstrap, "t")]
        for partition in (0, 1):
            found = [value for value in values if value.startswith(b"%d" % partition)]
            assert found == [b"%d-%02d" % (partition, number) for number in range(BATCHES)]
