"""Whether a consumer is new, open or closed, and what it may be next."""

from __future__ import annotations

import enum


class CoreState(enum.Enum):
    NEW = "new"
    OPEN = "open"
    UNUSED = "closed before it was open"
    CLOSED = "closed"


TRANSITIONS: dict[CoreState, frozenset[CoreState]] = {
    CoreState.NEW: frozenset({CoreState.OPEN, CoreState.UNUSED}),
    CoreState.OPEN: frozenset({CoreState.CLOSED}),
    CoreState.UNUSED: frozenset(),
    CoreState.CLOSED: frozenset(),
}
