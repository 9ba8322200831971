"""A broker that leads many parents finds their fences some at a time: others are to be served in between."""

from __future__ import annotations

import pytest

import ottla.testing
from ottla.broker import growing
from ottla.client import Admin, NewTopic, Producer
from ottla.log.log import Log
from ottla.log.visible import Counting, visible_end
from ottla.records.growth import Phase
from tests.growing.ledger import wait_until

TOPIC = "t"
PARENTS = 4


def test_fences_are_found_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    look = growing.Growing._look

    def noted_look(self: growing.Growing) -> None:
        looks.append(0)
        look(self)

    def noted_end(log: Log, end_offset: int) -> Counting:
        looks[-1] += 1
        return visible_end(log, end_offset)

    monkeypatch.setattr(growing, "MOST_FINDING_SECONDS", 0.0)
    monkeypatch.setattr(growing.Growing, "_look", noted_look)
    monkeypatch.setattr(growing, "visible_end", noted_end)
    with ottla.testing.broker() as broker, Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARENTS)])
        with Producer(broker.bootstrap) as producer:
            for index in range(PARENTS):
                producer.send(TOPIC, b"v", partition=index)
        admin.expand_in_order({TOPIC: 2 * PARENTS}, quiet_ms=0)
        wait_until(lambda: admin.describe_growths([TOPIC])[TOPIC][-1].phase is Phase.OPEN, "the topic has grown")
        [growth] = admin.describe_growths([TOPIC])[TOPIC]
        assert growth.fences == dict.fromkeys(range(PARENTS), 1)
        wait_until(lambda: sum(looks) == 2 * PARENTS, "the fences that stand were looked at, too")
    assert max(looks) == 1
