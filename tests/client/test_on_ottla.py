"""The client against Ottla's own broker."""

from collections.abc import Iterator

import pytest

from ottla.testing.broker import running_broker
from tests.client.contract import ClientContract


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with running_broker() as broker:
        yield broker.bootstrap


class TestOnOttla(ClientContract):
    pass
