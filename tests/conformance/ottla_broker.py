"""The broker that the answers are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from ottla.broker.api_table import served_apis
from ottla.testing import LocalBroker
from tests.conformance.sizes import SIZE_SETTINGS


class Ottla:
    """One broker for all exchanges."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.silent_since: str | None = None
        """The exchange in which it stopped to answer. Those behind it need not wait for it too."""


SETTINGS = {  # as Apache Kafka has them in tests.apache_kafka
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    **SIZE_SETTINGS,
}


@contextmanager
def running_ottla() -> Iterator[Ottla]:
    with TemporaryDirectory(prefix="ottla-conformance-") as folder:
        broker = LocalBroker(folder, settings=SETTINGS)
        try:
            yield Ottla((broker.host, broker.port))
        finally:
            broker.stop()


def served_names() -> set[str]:
    return {api.name for api in served_apis()}
