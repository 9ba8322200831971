"""Where Ottla answers otherwise than Apache Kafka, and means to. docs/conformance.md shows the same table.

Each row names an exchange and the steps (from 0) whose answers Ottla gives in place of Kafka's. Everything else of
the exchange is as Kafka's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

from tests.conformance.rendering import Json


class Difference(NamedTuple):
    reason: str
    change: Callable[[list[dict[str, Json]]], None]
    """Turns the steps that Kafka answered into those that Ottla answers."""


def expected_steps(full_name: str, steps: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """What Ottla answers in an exchange, given what Kafka did."""
    if full_name not in DIFFERENCES:
        return steps
    changed = copy.deepcopy(steps)
    DIFFERENCES[full_name].change(changed)
    return changed


DIFFERENCES: dict[str, Difference] = {}
