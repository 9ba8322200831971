"""The settings that transactions go by. They may change at any time, so machines ask whenever they need one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    max_timeout_ms: int = 900_000
    abort_interval_ms: int = 10_000
    """How often transactions that take too long are looked for."""
    id_expiration_ms: int = 604_800_000
    removal_interval_ms: int = 3_600_000
    """How often transactional ids that nobody uses are looked for."""
