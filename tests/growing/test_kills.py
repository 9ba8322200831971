"""The order of every key while a topic grows in order twice and brokers are killed with -9 in the middle of it.

OTTLA_GROWING_KILLS: how many brokers are killed while it grows, instead of one each time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from ottla.client import Admin, ClientError, ClientOptions, NewTopic
from ottla.records.growth import Growth, Phase
from tests.cluster.processes import Cluster
from tests.growing.clients import TOPIC, ConfluentMember, ConfluentWriter, OttlaMember, OttlaWriter
from tests.growing.ledger import Ledger, wait_until

KILLS = int(os.environ.get("OTTLA_GROWING_KILLS", "1"))
QUIET_MS = 4000  # on a busy machine, too, a writer sends what it has chosen partitions for before
SETTINGS = {"min.insync.replicas": "1", "group.consumer.heartbeat.interval.ms": "1000"}


class Growing:
    """Asks for a topic to grow, and asks again where nobody knows whether it was heard."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def ask(self, what: Callable[[Admin], object]) -> object | None:
        try:
            with Admin(self._bootstrap, ClientOptions(retry_timeout_ms=2_000, request_timeout_ms=5_000)) as admin:
                return what(admin)
        except (ClientError, TimeoutError):
            return None

    def growths(self) -> tuple[Growth, ...]:
        found = self.ask(lambda admin: admin.describe_growths([TOPIC])[TOPIC])
        return found if isinstance(found, tuple) else ()

    def begin(self, count: int) -> None:
        def has_begun() -> bool:
            self.ask(lambda admin: admin.expand_in_order({TOPIC: count}, quiet_ms=QUIET_MS))
            growths = self.growths()
            return bool(growths) and growths[-1].total == count

        wait_until(has_begun, "the topic begins to grow")

    def finish(self, count: int) -> None:
        def is_open() -> bool:
            growths = self.growths()
            return bool(growths) and growths[-1].total == count and growths[-1].phase is Phase.OPEN

        wait_until(is_open, "the topic has grown")


@pytest.mark.parametrize("brokers", [1, 3])
def test_order_with_kills(brokers: int, tmp_path: Path) -> None:
    ledger, random = Ledger(), Random(brokers)
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(tmp_path, brokers, SETTINGS))
        bootstrap, growing = cluster.bootstrap, Growing(cluster.bootstrap)
        with Admin(bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 2, brokers)])
        members = [
            ConfluentMember(ledger, bootstrap, "eager"),
            OttlaMember(ledger, bootstrap, "classic", group_protocol="classic"),
            OttlaMember(ledger, bootstrap, "consumer"),
        ]
        groups = [member.name for member in members]
        for member in members:
            stack.enter_context(member)
        with ConfluentWriter(ledger, bootstrap), OttlaWriter(ledger, bootstrap):
            wait_until(lambda: all(ledger.count_read(group) for group in groups), "all groups read")
            for count in (4, 8):
                growing.begin(count)
                for _ in range(KILLS):
                    time.sleep(random.random() * 1.5)
                    killed = cluster.brokers[random.randint(1, brokers)]
                    killed.kill()
                    time.sleep(random.random() * 0.5)
                    killed.start()
                growing.finish(count)
        ledger.check(*groups)
        late = stack.enter_context(OttlaMember(ledger, bootstrap, "late"))
        ledger.check(late.name)
        assert ledger.places["late"] == set(range(8))
