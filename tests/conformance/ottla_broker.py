"""The broker that the answers are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ottla.broker.dispatch import served_apis
from ottla.testing.broker import running_broker


class Ottla:
    """One broker for all exchanges."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.silent_since: str | None = None
        """The exchange in which it stopped to answer. Those behind it need not wait for it too."""


@contextmanager
def running_ottla() -> Iterator[Ottla]:
    with running_broker() as broker:
        yield Ottla((broker.host, broker.port))


def served_names() -> set[str]:
    return {api.name for api in served_apis()}
