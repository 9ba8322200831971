"""Ottla answers as Apache Kafka did, whose answers are in answers/. `make conformance` records them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conformance.answers import FOLDER, answers_of, difference, in_lines, read_answers
from tests.conformance.catalogue import all_exchanges, all_groups
from tests.conformance.differences import DIFFERENCES, expected_steps
from tests.conformance.exchange import Exchange
from tests.conformance.ottla_broker import Ottla, running_ottla, served_names
from tests.conformance.rendering import Json
from tests.conformance.script import BrokerSilent
from tests.conformance.served import SERVED

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
LEAST_EXCHANGES = 2000

recorded = cache(read_answers)


def apis_not_served(exchange: Exchange) -> set[str]:
    """Of what the exchange sends. What Kafka closed the connection over has no handler either way."""
    return set(recorded(exchange.group)[exchange.name]["apis"]) - SERVED


EXCHANGES = all_exchanges()
RECORDED = [exchange for exchange in EXCHANGES if exchange.name in recorded(exchange.group)]
RUN = [exchange for exchange in RECORDED if exchange.brokers == 1 and not apis_not_served(exchange)]
NOT_RUN = [exchange for exchange in RECORDED if apis_not_served(exchange)]


@pytest.fixture(scope="session")
def ottla() -> Iterator[Ottla]:
    with running_ottla() as ottla:
        yield ottla


def by_group(exchange: Exchange) -> object:
    """Exchanges of a group share a worker, and so a broker."""
    mark = pytest.mark.xdist_group(f"conformance: {exchange.group}")
    return pytest.param(exchange, marks=mark, id=exchange.full_name)


@pytest.mark.parametrize("exchange", [by_group(exchange) for exchange in RUN])
def test_answers_as_apache_kafka_does(exchange: Exchange, ottla: Ottla) -> None:
    assert ottla.silent_since is None, f"the broker has not answered since {ottla.silent_since}"
    try:
        answered = answers_of(exchange, ottla.address)
    except BrokerSilent:
        ottla.silent_since = exchange.full_name
        raise
    kafka: list[dict[str, Json]] = recorded(exchange.group)[exchange.name]["steps"]
    found = difference(expected_steps(exchange.full_name, kafka), answered["steps"])
    assert not found, f"{exchange.full_name}\n{found}"


def test_what_must_be_served_is_served_and_nothing_else() -> None:
    assert served_names() == SERVED, "tests/conformance/served.py says what must be served"


def test_no_exchange_waits_for_an_api_that_is_not_served_yet() -> None:
    if NOT_RUN:
        apis = sorted(set().union(*map(apis_not_served, NOT_RUN)))
        pytest.skip(f"{len(NOT_RUN)} of {len(EXCHANGES)} exchanges wait for {', '.join(apis)}")


def test_every_exchange_is_recorded_and_nothing_else() -> None:
    kept = {(path.stem, name) for path in FOLDER.glob("*.json") for name in recorded(path.stem)}
    assert kept == {(exchange.group, exchange.name) for exchange in EXCHANGES}


def test_there_are_enough_exchanges() -> None:
    assert len(EXCHANGES) >= LEAST_EXCHANGES
    assert all(group.all for group in all_groups())


def test_answers_hold_nothing_of_the_machine_they_were_recorded_on() -> None:
    for path in FOLDER.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert "/tmp" not in text
        assert str(Path.home()) not in text


def test_answers_are_kept_a_line_a_step() -> None:
    for path in FOLDER.glob("*.json"):
        assert path.read_text(encoding="utf-8") == in_lines(recorded(path.stem)), f"record again: {path.stem}"


@pytest.mark.parametrize("full_name", DIFFERENCES)
def test_a_difference_is_one(full_name: str) -> None:
    [exchange] = [exchange for exchange in EXCHANGES if exchange.full_name == full_name]
    steps = recorded(exchange.group)[exchange.name]["steps"]
    assert expected_steps(full_name, steps) != steps


def test_the_page_lists_every_difference_with_its_reason() -> None:
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## What differs by decision")
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{name}` | {found.reason} |" for name, found in DIFFERENCES.items()]
