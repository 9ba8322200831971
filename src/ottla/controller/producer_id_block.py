"""Blocks of producer ids, claimed in the store: no two brokers ever have an id in common, nor one broker twice."""

from __future__ import annotations

from ottla.controller import layout
from ottla.controller.store import Create, NodeExists, Operation, Set, Store, VersionChanged

BLOCK_SIZE = 1000


def claim_producer_ids(store: Store, node_id: int) -> range:
    """The next block. What is left of it when its broker stops is lost, which costs nothing."""
    while True:
        latest = layout.find(store, layout.PRODUCER_ID_BLOCK)
        start = 0 if latest is None else layout.decode_producer_id_block(latest.data).stop
        block = range(start, start + BLOCK_SIZE)
        data = layout.encode_producer_id_block(node_id, block)
        claim: Operation = Create(layout.PRODUCER_ID_BLOCK, data)
        if latest is not None:
            claim = Set(layout.PRODUCER_ID_BLOCK, data, latest.version)
        try:
            store.commit([claim])
        except (NodeExists, VersionChanged):
            continue  # another broker was quicker
        return block
