"""Records that were not written, until somebody is told: `flush` and `close` raise what nobody has asked for."""

from __future__ import annotations

from ottla.client.errors import ClientError
from ottla.client.producer.batch import Batch
from ottla.client.producer.chunk import Chunk

MOST_KEPT = 1000
"""Of which is known whether somebody asks later; older ones are counted as they are."""

Source = Batch | Chunk | tuple[Chunk, int]


class Failures:
    def __init__(self) -> None:
        self._kept: list[tuple[Source, ClientError]] = []
        self._counted: list[tuple[int, ClientError]] = []

    def add(self, source: Source, error: ClientError) -> None:
        self._kept.append((source, error))
        if len(self._kept) > MOST_KEPT:
            count = sum(_unobserved(kept) for kept, _ in self._kept[: MOST_KEPT // 2])
            before = sum(count for count, _ in self._counted)
            if count + before:
                self._counted = [(count + before, self._counted[0][1] if self._counted else self._kept[0][1])]
            del self._kept[: MOST_KEPT // 2]

    def take(self) -> list[tuple[int, ClientError]]:
        """Those that nobody has asked for since the last call: how many records, and why."""
        kept, self._kept = self._kept, []
        counted, self._counted = self._counted, []
        counts = [(_unobserved(source), error) for source, error in kept]
        return counted + [(count, error) for count, error in counts if count]


def _unobserved(source: Source) -> int:
    if isinstance(source, Batch):
        return source.count_unobserved()
    if isinstance(source, Chunk):
        return source.count_unobserved(range(source.count))
    chunk, index = source
    return chunk.count_unobserved([index])
