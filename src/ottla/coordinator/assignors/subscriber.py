"""What an assignor works with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

Partitions: TypeAlias = dict[bytes, frozenset[int]]
"""Partitions by topic id. A topic without any is not there."""

NO_PARTITIONS: Mapping[bytes, frozenset[int]] = {}


class Subscriber(NamedTuple):
    """A member of a group, as an assignor sees it."""

    topic_ids: frozenset[bytes]  # of the topics that it subscribes to and that exist
    target: Mapping[bytes, frozenset[int]]  # what it was to have so far
    instance_id: str | None = None


def frozen(partitions: Mapping[bytes, list[int]]) -> Partitions:
    return {topic_id: frozenset(numbers) for topic_id, numbers in partitions.items() if numbers}
