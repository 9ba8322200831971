"""What an assignor works with."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NamedTuple, TypeAlias

Partitions: TypeAlias = dict[bytes, frozenset[int]]
"""Partitions by topic id. A topic without any is not there."""

AssignorSteps: TypeAlias = Generator[None, None, dict[str, Partitions]]

STEP_PARTITIONS = 2000
"""How many partitions an assignor places, or looks at, in a step."""

NO_PARTITIONS: Mapping[bytes, frozenset[int]] = {}


class Subscriber(NamedTuple):
    """A member of a group, as an assignor sees it."""

    topic_ids: frozenset[bytes]  # of the topics that it subscribes to and that exist
    target: Mapping[bytes, frozenset[int]]  # what it was to have so far
    instance_id: str | None = None


def frozen(partitions: Mapping[bytes, list[int]]) -> Partitions:
    return {topic_id: frozenset(numbers) for topic_id, numbers in partitions.items() if numbers}


class Pause:
    """Tells when a step has done enough."""

    def __init__(self) -> None:
        self._done = 0

    def is_due(self, partitions: int) -> bool:
        """Count what was done, and say whether others should have their turn."""
        self._done += partitions
        if self._done < STEP_PARTITIONS:
            return False
        self._done = 0
        return True
