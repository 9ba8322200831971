"""Producer ids: each is given once in the life of a cluster, from blocks that brokers claim."""

from __future__ import annotations

from collections.abc import Callable

BLOCK_SIZE = 1000


class NoProducerId(Exception):
    """No block of ids can be claimed at the moment."""


class ProducerIds:
    def __init__(self, claim_block: Callable[[], range]) -> None:
        """`claim_block`: ids that nobody else has or will have; raises NoProducerId."""
        self._claim_block = claim_block
        self._left = range(0)

    def new(self) -> int:
        if not self._left:
            self._left = self._claim_block()
        producer_id, self._left = self._left[0], self._left[1:]
        return producer_id
