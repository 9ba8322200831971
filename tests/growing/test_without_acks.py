"""Producers that wait for no acknowledgement (acks=0), while their topic grows in order.

What a parent refuses is not told to them: their connection is closed, as Kafka does it, and they ask for metadata. Such
records are lost, as anything may be with acks=0; those that are there are in the order of their keys.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import ottla.testing
from ottla.client import LATEST, Admin, NewTopic, Reader
from tests.growing.clients import TOPIC, ConfluentWriter, OttlaWriter
from tests.growing.ledger import Ledger, wait_until
from tests.growing.test_order import grow


def test_keys_are_in_order_and_go_to_the_new_partitions() -> None:
    ledger = Ledger()
    with ExitStack() as stack:
        broker = stack.enter_context(ottla.testing.broker())
        admin = stack.enter_context(Admin(broker.bootstrap))
        admin.create_topics([NewTopic(TOPIC, 2)])
        settings: dict[str, Any] = {"acks": 0, "enable.idempotence": False}
        with (
            ConfluentWriter(ledger, broker.bootstrap, **settings),
            OttlaWriter(ledger, broker.bootstrap, acks="0", delivery_timeout_ms=60_000),
        ):
            wait_until(lambda: all(admin.find_offsets(TOPIC, LATEST).values()), "records are written")
            grow(admin, 4)
            written = {index: end for index, end in admin.find_offsets(TOPIC, LATEST).items() if index >= 2}
            wait_until(
                lambda: all(admin.find_offsets(TOPIC, LATEST)[index] > end + 50 for index, end in written.items()),
                "both write to the new partitions",
            )
        assert not ledger.failures, ledger.failures[:3]
        last: dict[bytes, int] = {}
        makes: dict[str, set[int]] = {"confluent": set(), "ottla": set()}
        with Reader(broker.bootstrap, TOPIC, end=LATEST, in_order=True) as reader:
            for fetched in reader:
                for record in fetched.records:
                    number = int(record.value)
                    assert number > last.get(record.key, -1), (record.key, number, last[record.key], fetched.partition)
                    last[record.key] = number
                    makes[record.key.decode().partition("-")[0]].add(fetched.partition)
    assert len(last) == len(ledger.written)
    assert makes == {"confluent": {0, 1, 2, 3}, "ottla": {0, 1, 2, 3}}
