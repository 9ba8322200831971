"""Producer ids: each is given once in the life of a cluster, from blocks that brokers claim and fetch ahead."""

from __future__ import annotations

from collections.abc import Callable

from ottla.wire.errors import ApiError, ErrorCode

FEW_LEFT = 100  # then the next block is fetched


class NoProducerId(ApiError):
    """There is no id at the moment; a block is on its way."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class ProducerIds:
    def __init__(self, fetch_block: Callable[[Callable[[range | None], None]], None]) -> None:
        """`fetch_block` calls back later with ids that nobody else has or will have; None if there are none now."""
        self._fetch_block = fetch_block
        self._left: list[range] = []
        self._is_fetching = False
        self._waiting: list[Callable[[], None]] = []

    def new(self) -> int:
        if not self._left:
            self._fetch()
            raise NoProducerId
        first = self._left[0]
        self._left[0] = first[1:]
        if not self._left[0]:
            del self._left[0]
        if sum(map(len, self._left)) < FEW_LEFT:
            self._fetch()
        return first[0]

    @property
    def are_left(self) -> bool:
        return bool(self._left)

    def when_fetched(self, done: Callable[[], None]) -> None:
        """Call when a block has come, or could not be had."""
        self._waiting.append(done)
        self._fetch()

    def _fetch(self) -> None:
        if not self._is_fetching:
            self._is_fetching = True
            self._fetch_block(self._fetched)

    def _fetched(self, block: range | None) -> None:
        self._is_fetching = False
        if block:
            self._left.append(block)
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()
