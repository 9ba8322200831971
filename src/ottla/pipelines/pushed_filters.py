"""Conditions of a batch read that need not wait for Spark: on topic, partition, offset and timestamp."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from ottla.client import TopicPartition


class PushedFilters:
    """What was taken over; all of it must hold."""

    def __init__(self) -> None:
        self._topics: set[str] | None = None
        self._partitions: set[int] | None = None
        self._partition_limits: list[tuple[int | None, int | None]] = []
        self._least_offset: int | None = None
        self._offset_limit: int | None = None
        self.least_time_ms: int | None = None
        self.time_limit_ms: int | None = None

    def take(self, one: Filter) -> bool:
        """Whether Spark need not apply it. A time is used here and applied there again: a record's time has parts
        of a millisecond in Spark, and none here."""
        column = getattr(one, "attribute", ())
        match column:
            case ("topic",):
                return self._take_topic(one)
            case ("partition",):
                return self._take_partition(one)
            case ("offset",):
                return self._take_offset(one)
            case ("timestamp",):
                self._take_time(one)
        return False

    def _take_topic(self, one: Filter) -> bool:
        match one:
            case EqualTo(_, str(name)) | EqualNullSafe(_, str(name)):
                self._topics = _both(self._topics, {name})
            case In(_, names) if all(isinstance(name, str) for name in names):
                self._topics = _both(self._topics, set(names))
            case _:
                return False
        return True

    def _take_partition(self, one: Filter) -> bool:
        if isinstance(one, In) and all(type(number) is int for number in one.value):
            self._partitions = _both(self._partitions, set(one.value))
            return True
        bounds = _bounds(one)
        if bounds is None:
            return False
        self._partition_limits.append(bounds)
        return True

    def _take_offset(self, one: Filter) -> bool:
        bounds = _bounds(one)
        if bounds is None:
            return False
        self._least_offset, self._offset_limit = _tighter(self._least_offset, self._offset_limit, bounds)
        return True

    def _take_time(self, one: Filter) -> None:
        value = getattr(one, "value", None)
        if not isinstance(value, datetime):
            return
        try:
            time_ms = _milliseconds(value)
        except (ValueError, OverflowError):  # at the ends of the calendar a time has no place in another zone
            return
        match one:
            case GreaterThan() | GreaterThanOrEqual():
                bounds: tuple[int | None, int | None] = (time_ms, None)
            case LessThan() | LessThanOrEqual():
                bounds = (None, time_ms + 1)
            case EqualTo() | EqualNullSafe():
                bounds = (time_ms, time_ms + 1)
            case _:
                return
        self.least_time_ms, self.time_limit_ms = _tighter(self.least_time_ms, self.time_limit_ms, bounds)

    def takes(self, place: TopicPartition) -> bool:
        if self._topics is not None and place.topic not in self._topics:
            return False
        if self._partitions is not None and place.partition not in self._partitions:
            return False
        return all(
            (least is None or place.partition >= least) and (limit is None or place.partition < limit)
            for least, limit in self._partition_limits
        )

    def narrow(self, start: int, end: int) -> tuple[int, int]:
        """Of a range of offsets, what is asked for."""
        if self._least_offset is not None:
            start = max(start, self._least_offset)
        return start, end if self._offset_limit is None else min(end, self._offset_limit)


def _both(first: set[Any] | None, second: set[Any]) -> set[Any]:
    return second if first is None else first & second


def _bounds(one: Filter) -> tuple[int | None, int | None] | None:
    """A condition on a whole number as what it is at least, and below what it is."""
    value = getattr(one, "value", None)
    if type(value) is not int:
        return None
    match one:
        case EqualTo() | EqualNullSafe():
            return value, value + 1
        case GreaterThan():
            return value + 1, None
        case GreaterThanOrEqual():
            return value, None
        case LessThan():
            return None, value
        case LessThanOrEqual():
            return None, value + 1
    return None


def _tighter(
    least: int | None, limit: int | None, bounds: tuple[int | None, int | None]
) -> tuple[int | None, int | None]:
    leasts = [number for number in (least, bounds[0]) if number is not None]
    limits = [number for number in (limit, bounds[1]) if number is not None]
    return max(leasts, default=None), min(limits, default=None)


def _milliseconds(value: datetime) -> int:
    """Rounded down. Without a zone it is the local time of the machine, as Spark hands it to Python."""
    aware = value if value.tzinfo is not None else value.astimezone()
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds) // 1000
