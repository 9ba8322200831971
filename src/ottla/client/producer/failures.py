"""Records that were not written, until somebody is told: `flush` and `close` raise what nobody has asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from ottla.client.errors import ClientError
from ottla.client.producer.batch import Batch
from ottla.client.producer.chunk import Chunk

MOST_KEPT = 1000
"""Of which is known whether somebody asks later; older ones are counted as they are."""

Source = Batch | Chunk | tuple[Chunk, int]
Lost = list[tuple[int, ClientError]]
"""How many records, and why."""


class Failures:
    """Several may wait at a time: each of them is told of what fails meanwhile, whoever else is."""

    def __init__(self) -> None:
        self._told_to_others: dict[int, Lost] = {}
        """Of those who wait: what others were told since."""
        self._numbers = count()
        self._kept: list[tuple[Source, ClientError]] = []
        self._counted: list[tuple[int, ClientError]] = []

    def add(self, source: Source, error: ClientError) -> None:
        self._kept.append((source, error))
        if len(self._kept) > MOST_KEPT:
            records = sum(_unobserved(kept) for kept, _ in self._kept[: MOST_KEPT // 2])
            records += sum(before for before, _ in self._counted)
            if records:
                self._counted = [(records, self._counted[0][1] if self._counted else self._kept[0][1])]
            del self._kept[: MOST_KEPT // 2]

    @contextmanager
    def awaited(self) -> Iterator[Callable[[], Lost]]:
        """For the time that somebody waits for records: a function that takes what has failed, in the end."""
        number = next(self._numbers)
        self._told_to_others[number] = []
        try:
            yield lambda: self._told_to_others.pop(number) + self.take()
        finally:
            self._told_to_others.pop(number, None)

    def take(self) -> Lost:
        """Those that nobody has asked for since the last call."""
        kept, self._kept = self._kept, []
        counted, self._counted = self._counted, []
        found = [(_unobserved(source), error) for source, error in kept]
        taken = counted + [(records, error) for records, error in found if records]
        for told in self._told_to_others.values():
            told += taken
        return taken


def _unobserved(source: Source) -> int:
    if isinstance(source, Batch):
        return source.count_unobserved()
    if isinstance(source, Chunk):
        return source.count_unobserved(range(source.count))
    chunk, index = source
    return chunk.count_unobserved([index])
