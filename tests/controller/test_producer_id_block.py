"""Blocks of producer ids in the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.controller import layout
from ottla.controller.producer_id_block import claim_producer_ids
from ottla.controller.store import Create, StoreError, StoreUnusable
from tests.controller.homes import HOMES, Home, OpenStore


@pytest.fixture(params=HOMES)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    home = Home(request.param, tmp_path)
    yield home
    home.close()


def claim(home: Home, *claims: tuple[OpenStore, int]) -> list[range | StoreError]:
    """Claims of brokers at the same time."""
    claimed: list[range | StoreError] = []
    for store, node_id in claims:
        claim_producer_ids(store.store, node_id, claimed.append)
    home.loop.run_until(lambda: len(claimed) == len(claims))
    return claimed


def test_each_block_follows_the_last_one(home: Home) -> None:
    store = home.open()
    assert claim(home, (store, 1)) == [range(1000)]
    assert claim(home, (store, 2)) == [range(1000, 2000)]
    store.close()
    store = home.open()
    assert claim(home, (store, 1)) == [range(2000, 3000)]
    assert store.get(layout.PRODUCER_ID_BLOCK).data == (
        b'{"version":1,"broker":1,"block_start":"2000","block_end":"2999"}'
    )


@pytest.mark.parametrize("claimed_before", [0, 1])
def test_who_is_overtaken_takes_the_block_behind(home: Home, claimed_before: int) -> None:
    store = home.open()
    for _ in range(claimed_before):
        claim(home, (store, 1))
    claimed = claim(home, (store, 1), (store, 2))  # both look before one of them has it
    first = claimed_before * 1000
    assert claimed == [range(first, first + 1000), range(first + 1000, first + 2000)]


def test_a_node_that_is_no_block_is_told(home: Home) -> None:
    store = home.open()
    store.commit([Create(layout.PRODUCER_ID_BLOCK, b"what")])
    [answer] = claim(home, (store, 1))
    assert isinstance(answer, StoreUnusable)
