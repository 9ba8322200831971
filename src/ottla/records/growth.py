"""Topics that grow in order: what is remembered of partitions that were added, and who may read them.

The new count is a multiple of the one before, so a key of partition p stays in p or goes to p + j * before: p is the
parent of those. The fence of a parent is the offset behind the last record that it may have of keys that went. Who
reads the parent up to its fence, and then the new partition, reads every key in order.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.records.placement import MURMUR2

NO_OFFSET = -1
CONFIG_NAME = "ottla.partitions.growth"
"""The entry among the configurations of a topic that tells how it has grown. It cannot be set."""

_NO_FENCES: Mapping[int, int] = {}


class Phase(enum.Enum):
    """How far a topic has come. Its values are kept in the store."""

    PREPARING = "preparing"  # brokers learn of it, and tell nobody how many partitions there are
    DRAINING = "draining"  # producers learn of the new partitions, which nobody leads yet
    FENCING = "fencing"  # parents take nothing more of keys that go, and their leaders tell how far they are
    OPEN = "open"


class Growth(NamedTuple):
    """Partitions that were added at one time."""

    first: int  # how many there were before, and so the index of the first
    total: int  # how many there are with them
    partitioner: str = MURMUR2  # how producers choose the partition of a key
    phase: Phase = Phase.OPEN
    fences: Mapping[int, int] = _NO_FENCES  # by parent; one that is not there holds nobody back
    quiet_ms: int = 0  # for how long no record of a key that goes may come before the fences are set

    def parent_of(self, index: int) -> int:
        return index % self.first

    @property
    def new_partitions(self) -> range:
        return range(self.first, self.total)

    @property
    def parents(self) -> range:
        return range(self.first)


class Held(NamedTuple):
    """Why a partition is held back: its parent is to be read up to the fence. -1: nobody can tell how far yet."""

    parent: int
    fence: int


Growths = Sequence[Growth]


def held_back(growths: Growths, committed: Callable[[int], int]) -> dict[int, Held]:
    """The partitions that a reader may not read yet. `committed`: how far it is in a partition; -1 if it never began.

    A partition whose parent is held back is so, too.
    """
    held: dict[int, Held] = {}
    for growth in growths:
        if growth.phase is Phase.OPEN and not growth.fences and not held:
            continue
        passed = {parent: committed(parent) >= fence for parent, fence in growth.fences.items()}
        for index in growth.new_partitions:
            parent = growth.parent_of(index)
            if growth.phase is not Phase.OPEN:
                held[index] = Held(parent, NO_OFFSET)
            elif not passed.get(parent, True) or parent in held:
                held[index] = Held(parent, growth.fences.get(parent, 0))
    return held


def is_growing(growths: Growths) -> bool:
    return bool(growths) and growths[-1].phase is not Phase.OPEN


def is_checked(growths: Growths, partition_count: int) -> bool:
    """Whether keys have to be where they belong: until partitions are added in any other way."""
    return bool(growths) and growths[-1].total == partition_count


# As JSON


def encode_growths(growths: Iterable[Growth]) -> list[dict[str, Any]]:
    return [
        {
            "from": growth.first,
            "to": growth.total,
            "partitioner": growth.partitioner,
            "phase": growth.phase.value,
            "fences": {str(parent): fence for parent, fence in growth.fences.items()},
            "quiet_ms": growth.quiet_ms,
        }
        for growth in growths
    ]


def decode_growths(fields: Iterable[Mapping[str, Any]]) -> tuple[Growth, ...]:
    """KeyError or ValueError where it is something else."""
    return tuple(
        Growth(
            each["from"],
            each["to"],
            each["partitioner"],
            Phase(each["phase"]),
            {int(parent): fence for parent, fence in each["fences"].items()},
            each["quiet_ms"],
        )
        for each in fields
    )
