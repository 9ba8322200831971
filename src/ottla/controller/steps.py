"""Work that takes long with thousands of topics, in steps: whoever runs it does other things in between."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import TypeAlias, TypeVar

T = TypeVar("T")
InSteps: TypeAlias = Generator[None, None, T]

A_STEP = 250
"""Topics, partitions or nodes, for each of which some ten microseconds are needed."""


def finished(steps: InSteps[T]) -> T:
    """What comes out in the end, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def parts(items: Iterable[T], size: int = A_STEP) -> Iterator[list[T]]:
    """What is done in one step."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part
