"""Three brokers of Ottla answer as three of Apache Kafka did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import Cluster
from tests.conformance.answers import answers_of, difference, read_answers
from tests.conformance.catalogue import all_exchanges
from tests.conformance.cluster import BROKERS, CLUSTER_SETTINGS, prepare_cluster, without
from tests.conformance.differences import expected_steps
from tests.conformance.exchange import Exchange
from tests.conformance.script import Addresses

EXCHANGES = [exchange for exchange in all_exchanges() if exchange.brokers == BROKERS]

DOWN = 3

pytestmark = pytest.mark.xdist_group("three brokers")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    folder: Path = tmp_path_factory.mktemp("cluster")
    with Cluster(folder, BROKERS, CLUSTER_SETTINGS) as cluster:
        prepare_cluster(cluster.addresses)
        yield cluster.addresses


@pytest.fixture(scope="module")
def brokers_without_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    folder: Path = tmp_path_factory.mktemp("cluster-without-one")
    with Cluster(folder, BROKERS, CLUSTER_SETTINGS) as cluster:
        cluster.brokers[DOWN].kill()
        yield without(cluster.addresses, DOWN)


def params(is_whole: bool) -> list[object]:
    found = [exchange for exchange in EXCHANGES if (exchange.without is None) is is_whole]
    return [pytest.param(exchange, id=exchange.full_name) for exchange in found]


@pytest.mark.parametrize("exchange", params(is_whole=True))
def test_three_brokers_answer_as_apache_kafkas_do(exchange: Exchange, brokers: Addresses) -> None:
    compare(exchange, brokers)


def test_two_of_three_brokers_answer_as_apache_kafkas_do(brokers_without_one: Addresses) -> None:
    """In their order: the last one forgets the broker that is down."""
    for exchange in EXCHANGES:
        if exchange.without == DOWN:
            compare(exchange, brokers_without_one)


def compare(exchange: Exchange, brokers: Addresses) -> None:
    answered = answers_of(exchange, brokers[1], brokers)
    kafka = read_answers(exchange.group)[exchange.name]["steps"]
    found = difference(expected_steps(exchange.full_name, kafka), answered["steps"])
    assert not found, f"{exchange.full_name}\n{found}"
