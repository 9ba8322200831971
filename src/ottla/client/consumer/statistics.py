"""What a consumer has done so far, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass
class Counters:
    """Counted as it happens."""

    fetches: int = 0
    fetched_bytes: int = 0
    polls: int = 0
    commits: int = 0
    failed_commits: int = 0
    rebalances: int = 0
    errors: int = 0


class ConsumerStatistics(NamedTuple):
    """Since the consumer was opened; what is held and behind is of this moment."""

    fetches: int
    fetched_bytes: int
    polls: int
    commits: int
    failed_commits: int
    rebalances: int
    errors: int
    """Raised to the user."""
    partitions: int
    held_bytes: int
    """Fetched, and not yet handed out."""
    lag: int
    """Offsets behind the positions, as far as is known."""
