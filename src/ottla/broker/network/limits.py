"""The bounds of one connection."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    max_frame_bytes: int = 104_857_600
    max_requests_in_flight: int = 100
    max_unsent_bytes: int = 64 << 20
