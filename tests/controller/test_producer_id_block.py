"""Blocks of producer ids in the store."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.controller import layout
from ottla.controller.local_store import LocalStore
from ottla.controller.producer_id_block import claim_producer_ids
from ottla.controller.store import Operation


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def test_each_block_follows_the_last_one(path: str) -> None:
    store = LocalStore(path)
    assert claim_producer_ids(store, 1) == range(1000)
    assert claim_producer_ids(store, 2) == range(1000, 2000)
    store.close()
    store = LocalStore(path)
    assert claim_producer_ids(store, 1) == range(2000, 3000)
    assert store.get(layout.PRODUCER_ID_BLOCK).data == (
        b'{"version":1,"broker":1,"block_start":"2000","block_end":"2999"}'
    )
    store.close()


@pytest.mark.parametrize("claimed_before", [0, 1])
def test_who_is_overtaken_takes_the_block_behind(path: str, claimed_before: int) -> None:
    class Overtaken(LocalStore):
        """Another broker claims a block between the look and the change."""

        is_overtaken = False

        def commit(self, operations: Sequence[Operation], *, is_vital: bool = False) -> None:
            if self.is_overtaken:
                self.is_overtaken = False
                claim_producer_ids(self, 2)
            super().commit(operations, is_vital=is_vital)

    store = Overtaken(path)
    for _ in range(claimed_before):
        claim_producer_ids(store, 1)
    store.is_overtaken = True
    assert claim_producer_ids(store, 1)[0] == 1000 * (claimed_before + 1)
    store.close()
