"""Topics for the tests: written with numbered records, and read back."""

import time
from collections.abc import Iterable

from ottla.client import LATEST, NewRecord, Producer, Reader
from ottla.testing import LocalBroker

KEPT = {"retention.ms": "-1"}
"""For topics whose records are said to be old: retention goes by what records say of their time."""


def write(
    broker: LocalBroker, topic: str, numbers: Iterable[int], partitions: int = 2, *, is_old: bool = False
) -> None:
    """Records whose number is in value and key, a second apart; a third has no headers. Old ones are of 1970."""
    first_ms = 0 if is_old else time.time_ns() // 1_000_000 - 3_600_000
    records = [
        NewRecord(
            b"v%d" % number,
            b"k%d" % number,
            timestamp_ms=first_ms + 1000 * number,
            partition=number % partitions,
            headers=[("number", b"%d" % number)] if number % 3 else [],
        )
        for number in numbers
    ]
    with Producer(broker.bootstrap) as producer:
        producer.send_many(topic, records)


def read_values(bootstrap: str, topic: str) -> list[str]:
    """Those of committed records, partition by partition, each in its order."""
    found: dict[int, list[str]] = {}
    with Reader(bootstrap, topic, end=LATEST) as reader:
        for fetched in reader:
            values = found.setdefault(fetched.partition, [])
            values += [(record.value or b"").decode() for record in fetched.records]
    return [value for _, values in sorted(found.items()) for value in values]
