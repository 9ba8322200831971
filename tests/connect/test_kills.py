"""Runners as real processes, killed and stopped in the middle, on Ottla. Apache Kafka has the same contract."""

from collections.abc import Iterator

import pytest

import ottla.testing
from tests.connect.kills_contract import KillsContract


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with ottla.testing.broker() as broker:
        yield broker.bootstrap


class TestKills(KillsContract):
    session_timeout_ms = 1_500
