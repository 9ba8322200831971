"""The order of every key while a topic grows in order twice, under load."""

from __future__ import annotations

import time
from contextlib import ExitStack

import ottla.testing
from ottla.client import Admin, NewTopic
from ottla.records.growth import Phase
from tests.growing.clients import TOPIC, ConfluentMember, ConfluentWriter, OttlaMember, OttlaWriter
from tests.growing.ledger import Ledger, wait_until

QUIET_MS = 4000  # on a busy machine, too, a writer sends what it has chosen partitions for before


def grow(admin: Admin, count: int) -> None:
    admin.expand_in_order({TOPIC: count}, quiet_ms=QUIET_MS)
    wait_until(lambda: admin.describe_growths([TOPIC])[TOPIC][-1].phase is Phase.OPEN, "the topic has grown")


def test_order_with_all_clients() -> None:
    ledger = Ledger()
    with ExitStack() as stack:
        broker = stack.enter_context(ottla.testing.broker())
        admin = stack.enter_context(Admin(broker.bootstrap))
        admin.create_topics([NewTopic(TOPIC, 2)])
        members = [
            ConfluentMember(ledger, broker.bootstrap, "eager"),
            ConfluentMember(ledger, broker.bootstrap, "eager"),
            ConfluentMember(
                ledger, broker.bootstrap, "cooperative", **{"partition.assignment.strategy": "cooperative-sticky"}
            ),
            OttlaMember(ledger, broker.bootstrap, "classic", group_protocol="classic"),
            OttlaMember(ledger, broker.bootstrap, "consumer"),
            OttlaMember(ledger, broker.bootstrap, "consumer"),
        ]
        groups = sorted({member.name for member in members})
        for member in members:
            stack.enter_context(member)
        with ConfluentWriter(ledger, broker.bootstrap), OttlaWriter(ledger, broker.bootstrap):
            wait_until(lambda: all(ledger.count_read(group) for group in groups), "all groups read")
            grow(admin, 4)
            time.sleep(0.5)
            grow(admin, 8)
            time.sleep(0.5)
        ledger.check(*groups)
        # With small answers it gets something of each partition that it has in turn.
        late = ConfluentMember(ledger, broker.bootstrap, "late", **{"max.partition.fetch.bytes": 2_000})
        stack.enter_context(late)
        ledger.check(late.name)
        assert all(ledger.places[group] == set(range(8)) for group in [*groups, "late"]), ledger.places
