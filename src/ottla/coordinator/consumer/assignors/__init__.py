"""Who is to have which partitions of a consumer group. An assignor is a function without memory or I/O.

It is a generator that yields after each step of about a millisecond, and returns what each member is to have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ottla.coordinator.consumer.assignors.range import assign_ranges
from ottla.coordinator.consumer.assignors.subscriber import AssignorSteps, Partitions, Subscriber
from ottla.coordinator.consumer.assignors.uniform import assign_uniformly

Assignor: TypeAlias = Callable[[Mapping[str, Subscriber], Mapping[bytes, int]], AssignorSteps]
"""From the members, and the partition counts of all topics they subscribe to, to what each is to have."""

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}


def assigned(steps: AssignorSteps) -> dict[str, Partitions]:
    """What an assignor returns, with all its steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: dict[str, Partitions] = end.value
            return result


__all__ = ["ASSIGNORS", "Assignor", "AssignorSteps", "Partitions", "Subscriber", "assigned"]
