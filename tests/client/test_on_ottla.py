"""The client against Ottla's own broker."""

from collections.abc import Iterator

import pytest

import ottla.testing
from tests.client.consumer_contract import ConsumerContract
from tests.client.contract import ClientContract


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with ottla.testing.broker() as broker:
        yield broker.bootstrap


class TestOnOttla(ClientContract, ConsumerContract):
    pass
