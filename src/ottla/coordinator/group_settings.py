"""The settings that groups go by. They may change at any time, so machines ask for them whenever they need one."""

from __future__ import annotations

from dataclasses import dataclass

MOST_INT = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3000
    max_size: int = MOST_INT
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
