"""Blocks of producer ids, claimed in the store: no two brokers ever have an id in common, nor one broker twice."""

from __future__ import annotations

from ottla.controller import layout
from ottla.controller.store import (
    Answer,
    Create,
    Node,
    NodeExists,
    NodeMissing,
    Operation,
    Set,
    Store,
    StoreError,
    StoreUnusable,
    VersionChanged,
)

BLOCK_SIZE = 1000


def claim_producer_ids(store: Store, node_id: int, done: Answer[range]) -> None:
    """The next block. What is left of it when its broker stops is lost, which costs nothing."""

    def found(latest: Node | StoreError) -> None:
        if isinstance(latest, NodeMissing):
            block = range(BLOCK_SIZE)
            claim: Operation = Create(layout.PRODUCER_ID_BLOCK, layout.encode_producer_id_block(node_id, block))
        elif isinstance(latest, StoreError):
            done(latest)
            return
        else:
            try:
                start = layout.decode_producer_id_block(latest.data).stop
            except layout.CorruptNode as error:
                done(StoreUnusable(f"{layout.PRODUCER_ID_BLOCK}: {error}"))
                return
            block = range(start, start + BLOCK_SIZE)
            data = layout.encode_producer_id_block(node_id, block)
            claim = Set(layout.PRODUCER_ID_BLOCK, data, latest.version)
        store.commit([claim], lambda failure: claimed(block, failure))

    def claimed(block: range, failure: StoreError | None) -> None:
        if isinstance(failure, NodeExists | VersionChanged | NodeMissing):
            store.get(layout.PRODUCER_ID_BLOCK, found)  # another broker was quicker
        else:
            done(block if failure is None else failure)

    store.get(layout.PRODUCER_ID_BLOCK, found)
