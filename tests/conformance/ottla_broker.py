"""The broker that the answers are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ottla.broker.dispatch import served_apis
from ottla.testing.broker import running_broker


@contextmanager
def running_ottla() -> Iterator[tuple[str, int]]:
    """Its address."""
    with running_broker() as broker:
        yield broker.host, broker.port


def served_names() -> set[str]:
    return {api.name for api in served_apis()}
