"""What became of records: of one, or of many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.client.producer.chunk import Chunk

NO_OFFSET = -1


class Delivery(NamedTuple):
    """What became of one record. The offset is -1 where the broker was not to answer, or there is an error."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    error: ClientError | None = None


class Outcome(NamedTuple):
    """What became of a batch. Of one that was refused, `record_errors` are the records that were the reason."""

    base_offset: int = NO_OFFSET
    log_append_time_ms: int = -1
    error: ClientError | None = None
    record_errors: Mapping[int, ClientError] = {}

    def offset(self, position: int) -> int:
        return NO_OFFSET if self.base_offset < 0 else self.base_offset + position


class Deliveries(Sequence[Delivery]):
    """One for each record, in the order they were given. Each is made when it is looked at."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk

    def __len__(self) -> int:
        return self._chunk.count

    @overload
    def __getitem__(self, index: int) -> Delivery: ...

    @overload
    def __getitem__(self, index: slice) -> list[Delivery]: ...

    def __getitem__(self, index: int | slice) -> Delivery | list[Delivery]:
        if isinstance(index, slice):
            return [self._chunk.delivery(number) for number in range(*index.indices(len(self)))]
        return self._chunk.delivery(range(len(self))[index])

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._chunk.deliveries())

    def __repr__(self) -> str:
        return f"<{len(self):,} deliveries>"
