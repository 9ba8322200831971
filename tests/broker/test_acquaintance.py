"""Which clients a topic that grows concerns, by what their connections have shown of them."""

from __future__ import annotations

import pytest

from ottla.broker.network.acquaintance import (
    COMMITS_OFFSETS,
    COORDINATES,
    MOST_TOPICS,
    OTHER,
    PREPARES,
    READS,
    WRITES,
    Acquaintance,
)


def shown(uses: int, *topics: str) -> Acquaintance:
    acquaintance = Acquaintance()
    acquaintance.uses = uses
    for topic in topics:
        acquaintance.add(topic)
    return acquaintance


@pytest.mark.parametrize(
    ("uses", "concerned"),
    [
        (PREPARES, True),  # a producer that has written nothing yet looks like this
        (WRITES, True),
        (READS, True),
        (READS | OTHER, True),
        (WRITES | READS | OTHER, True),  # a client that shares its connections
        (OTHER, False),  # an administrator, or who talks to the coordinator of a group
        (COORDINATES, True),
        (WRITES | COORDINATES | COMMITS_OFFSETS, True),  # Java has one connection for all of it
        (WRITES | COMMITS_OFFSETS, False),  # librdkafka has another one to the coordinator
    ],
)
def test_who_knows_the_topic(uses: int, concerned: bool) -> None:
    assert shown(uses, "t", "u").is_concerned_with("t") is concerned
    everything = shown(uses)
    everything.add_all()
    assert everything.is_concerned_with("t") is concerned


@pytest.mark.parametrize("uses", [PREPARES, WRITES, READS, OTHER, COORDINATES, WRITES | COMMITS_OFFSETS])
def test_who_knows_other_topics(uses: int) -> None:
    assert not shown(uses, "u").is_concerned_with("t")


def test_who_has_named_no_topic() -> None:
    """A coordinator is not told of the topics of a transaction where brokers add the partitions."""
    assert [uses for uses in (PREPARES, WRITES, READS, OTHER) if shown(uses).is_concerned_with("t")] == []
    assert shown(COORDINATES).is_concerned_with("t")


def test_what_is_remembered_is_bounded() -> None:
    acquaintance = shown(WRITES, *(f"topic-{number}" for number in range(MOST_TOPICS)))
    assert not acquaintance.is_concerned_with("t")
    acquaintance.add("one more")
    acquaintance.add("and one more")
    assert not acquaintance.topics
    assert acquaintance.is_concerned_with("t")
