"""The settings that one consumer group goes by: the broker's, where the group has none of its own."""

from __future__ import annotations

import enum
from dataclasses import dataclass

MOST_INT = (1 << 31) - 1


class MigrationPolicy(enum.Enum):
    """Whether a group may change its protocol while it has members."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    assignment_interval_ms: int = 1000
    regex_refresh_interval_ms: int = 600_000
    max_size: int = MOST_INT
    assignors: tuple[str, ...] = ("uniform", "range")  # the first one serves where nobody asks for one
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
