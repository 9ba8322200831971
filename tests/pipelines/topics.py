"""Topics for the tests: written with numbered records, and read back."""

from collections.abc import Iterable

from ottla.client import LATEST, NewRecord, Producer, Reader
from ottla.testing import LocalBroker


def write(broker: LocalBroker, topic: str, numbers: Iterable[int], partitions: int = 2) -> None:
    """Records whose number is in their value, key and timestamp; a third of them has no headers."""
    records = [
        NewRecord(
            b"v%d" % number,
            b"k%d" % number,
            timestamp_ms=1000 * number,
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
