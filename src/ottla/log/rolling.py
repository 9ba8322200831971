"""When a segment is full, or old enough, for the next one to begin."""

from __future__ import annotations

from random import Random

from ottla.log.segment import LARGEST_RELATIVE_OFFSET, Segment
from ottla.log.topic_config import TopicConfig

NEVER = 1 << 62
_RANDOM = Random()


class Rolling:
    """Watches the active segment of one log.

    A segment ages by the time of its records: it lives `segment.ms` from that of its first batch. Where records
    have no time, the clock counts.
    """

    __slots__ = ("_config", "_last_timestamp", "_lifetime_ms")

    def __init__(self, config: TopicConfig) -> None:
        self._config = config
        self.begin()

    def begin(self) -> None:
        """Another segment is active, or the same one after it was cut."""
        self._lifetime_ms = self._config.max_segment_ms - self._config.draw_segment_jitter_ms(_RANDOM)
        self._last_timestamp = NEVER

    def is_due(self, segment: Segment, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch must go into a new segment."""
        if segment.size_bytes == 0:
            return last_offset - segment.base_offset > LARGEST_RELATIVE_OFFSET
        config = self._config
        return (
            segment.size_bytes + size_bytes > config.segment_bytes
            or max_timestamp > self._last_timestamp
            or last_offset - segment.base_offset > LARGEST_RELATIVE_OFFSET
            or segment.index_size_bytes > config.segment_index_bytes
            or (self._last_timestamp == NEVER and self._is_old(segment, max_timestamp, now_ms))
        )

    def _is_old(self, segment: Segment, max_timestamp: int, now_ms: int) -> bool:
        first = segment.first_timestamp()
        if first is None or first < 0:
            return now_ms - segment.created_ms > self._lifetime_ms
        self._last_timestamp = first + self._lifetime_ms
        return max_timestamp > self._last_timestamp
