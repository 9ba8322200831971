"""Who is to have which partitions of a consumer group. An assignor is a function without memory or I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ottla.coordinator.assignors.range import assign_ranges
from ottla.coordinator.assignors.subscriber import Partitions, Subscriber
from ottla.coordinator.assignors.uniform import assign_uniformly

Assignor: TypeAlias = Callable[[Mapping[str, Subscriber], Mapping[bytes, int]], dict[str, Partitions]]
"""From the members, and the partition counts of all topics they subscribe to, to what each is to have."""

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}

__all__ = ["ASSIGNORS", "Assignor", "Partitions", "Subscriber"]
