"""How many members groups may have in the exchanges: some make one that is full."""

from __future__ import annotations

MOST_CLASSIC_MEMBERS = 5
MOST_CONSUMERS = 4

SIZE_SETTINGS = {
    "group.max.size": str(MOST_CLASSIC_MEMBERS),
    "group.consumer.max.size": str(MOST_CONSUMERS),
}
"""Of the broker."""
