"""What a source is asked for: which topics, from where to where, and how."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ottla.client import EARLIEST, LATEST, Isolation, Position, TopicPartition
from ottla.pipelines.client_options import Cluster, cluster_of
from ottla.pipelines.options import CLIENT_NAMES, INT32, INT64, OptionError, Options

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"
_COMMON = (
    *CLIENT_NAMES, "subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp",
    "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "failOnDataLoss", "minPartitions",
    "maxRecordsPerPartition", "includeHeaders", "columns", "kafka.isolation.level", "kafka.fetch.max.bytes",
    "kafka.max.partition.fetch.bytes", "kafkaConsumer.pollTimeoutMs", "kafka.group.id", "groupIdPrefix",
)  # fmt: skip
BATCH_NAMES = (*_COMMON, "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
STREAM_NAMES = (*_COMMON, "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_ISOLATIONS = {"read_committed": Isolation.READ_COMMITTED, "read_uncommitted": Isolation.READ_UNCOMMITTED}
_WAYS = ("subscribe", "subscribePattern", "assign")
_EDGES: dict[int, Position] = {-2: EARLIEST, -1: LATEST}
_INDEX = re.compile("[0-9]{1,10}")
DEFAULT_FETCH_BYTES = 8 << 20


@dataclass(frozen=True)
class Subscription:
    """Topics by name, by pattern, or single partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None

    def takes(self, topic: str) -> bool:
        return self.pattern is not None and re.fullmatch(self.pattern, topic) is not None

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"the pattern {self.pattern}"
        return ", ".join(self.topics or sorted(self.assigned or ()))


@dataclass(frozen=True)
class ByTime:
    """A time for all partitions, or one for each."""

    times_ms: int | Mapping[TopicPartition, int]
    is_strict: bool
    """Whether it is an error that no record is as late."""


Edge: TypeAlias = Position | Mapping[TopicPartition, Position] | ByTime
"""Where to begin or to end: the same for all partitions, or for each its own."""


@dataclass(frozen=True)
class SourceOptions:
    cluster: Cluster
    subscription: Subscription
    start: Edge
    end: Edge
    columns: tuple[str, ...]
    isolation: Isolation
    fails_on_data_loss: bool
    least_partitions: int | None
    records_per_partition: int | None
    offsets_per_trigger: int | None
    bytes_per_trigger: int | None
    least_offsets_per_trigger: int | None
    trigger_delay_ms: int
    group_id: str | None
    partition_bytes: int
    fetch_bytes: int
    poll_timeout_ms: int


def source_options(given: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """OptionError for whatever cannot be right."""
    names, what = (STREAM_NAMES, "a stream of ottla") if is_stream else (BATCH_NAMES, "the source ottla")
    other = set(BATCH_NAMES) ^ set(STREAM_NAMES)
    for name in given:
        for only in other - set(names):
            if name.lower() == only.lower():
                kind = "streams" if only in STREAM_NAMES else "batch reads"
                raise OptionError(f"option {only} is for {kind} alone")
    options = Options(given, names, what)
    subscription = _subscription(options)
    return SourceOptions(
        cluster=cluster_of(options),
        subscription=subscription,
        start=_edge(options, "starting", "latest" if is_stream else "earliest", is_stream=is_stream),
        end=LATEST if is_stream else _edge(options, "ending", "latest", is_stream=is_stream),
        columns=columns_of(options),
        isolation=_ISOLATIONS[options.choice("kafka.isolation.level", _ISOLATIONS, "read_committed")],
        fails_on_data_loss=options.flag("failOnDataLoss", True),
        least_partitions=options.number("minPartitions", None, least=1),
        records_per_partition=options.number("maxRecordsPerPartition", None, least=1),
        offsets_per_trigger=options.number("maxOffsetsPerTrigger", None, least=1),
        bytes_per_trigger=options.number("maxBytesPerTrigger", None, least=1),
        least_offsets_per_trigger=options.number("minOffsetsPerTrigger", None, least=1),
        trigger_delay_ms=options.duration_ms("maxTriggerDelay", 15 * 60_000),
        group_id=_group_id(options, subscription),
        partition_bytes=options.number("kafka.max.partition.fetch.bytes", DEFAULT_FETCH_BYTES, 1, INT32),
        fetch_bytes=options.number("kafka.fetch.max.bytes", 50 << 20, 1, INT32),
        poll_timeout_ms=options.number("kafkaConsumer.pollTimeoutMs", 120_000, least=1),
    )


def columns_of(options: Options) -> tuple[str, ...]:
    """Those of the schema: all, or those that were chosen, in Spark's order."""
    every = (*COLUMNS, HEADERS) if options.flag("includeHeaders", False) else COLUMNS
    if not options.has("columns"):
        return every
    chosen = [name.strip() for name in options.text("columns").split(",") if name.strip()]
    unknown = [name for name in chosen if name not in every]
    if unknown or not chosen:
        raise OptionError(f"option columns names some of {', '.join(every)}, not {', '.join(unknown) or 'nothing'}")
    return tuple(name for name in every if name in chosen)


def _subscription(options: Options) -> Subscription:
    ways = [name for name in _WAYS if options.has(name)]
    if len(ways) != 1:
        found = " and ".join(ways) if ways else "none of them is set"
        raise OptionError(f"set one of the options {', '.join(_WAYS)}: {found}")
    text = options.required(ways[0])
    if ways[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise OptionError(f"option subscribe names no topic: {text!r}")
        return Subscription(topics=topics)
    if ways[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"option subscribePattern is not a regular expression: {error}") from None
        return Subscription(pattern=text)
    assigned = _json(options, "assign", '{"topic": [0, 1]}')
    if not assigned or not all(_is_list_of_partitions(indexes) for indexes in assigned.values()):
        raise OptionError(f'option assign is JSON like {{"topic": [0, 1]}}, not {text}')
    return Subscription(assigned={topic: tuple(sorted(set(indexes))) for topic, indexes in assigned.items()})


def _is_list_of_partitions(found: object) -> bool:
    return isinstance(found, list) and bool(found) and all(type(index) is int and index >= 0 for index in found)


def _edge(options: Options, side: str, default: str, *, is_stream: bool) -> Edge:
    """`side` is starting or ending. A time for all goes before a time for each, and that before offsets."""
    is_strict = side == "starting" and (
        options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error") == "error"
    )
    all_at = options.number(f"{side}Timestamp", None)
    if all_at is not None:
        return ByTime(all_at, is_strict)
    name = f"{side}OffsetsByTimestamp"
    if options.has(name):
        return ByTime(by_partition(_json(options, name, '{"topic": {"0": 1000}}'), name, least=0), is_strict)
    name = f"{side}Offsets"
    text = options.text(name, default).lower()
    if text == ("earliest" if side == "ending" else "latest") and not is_stream:
        raise OptionError(f"option {name} of a batch read is not {text}: nothing would be read")
    if text in ("earliest", "latest"):
        return EARLIEST if text == "earliest" else LATEST
    offsets = by_partition(_json(options, name, '{"topic": {"0": 23}}, earliest or latest'), name, least=-2)
    wrong = -2 if side == "ending" else -1
    if not is_stream and wrong in offsets.values():
        raise OptionError(f"option {name} of a batch read does not take {wrong}: nothing would be read")
    return {place: _EDGES.get(offset, offset) for place, offset in offsets.items()}


def by_partition(found: Mapping[str, Any], name: str, least: int) -> dict[TopicPartition, int]:
    """From {"topic": {"0": 23}}. An entry "id", as a stream's own offsets have it, is left out."""
    places: dict[TopicPartition, int] = {}
    for topic, numbers in found.items():
        if not isinstance(numbers, dict):
            raise OptionError(f'option {name} is JSON like {{"topic": {{"0": 23}}}}')
        for index, number in numbers.items():
            if index == "id":
                continue
            if not _INDEX.fullmatch(index) or type(number) is not int or not least <= number <= INT64:
                raise OptionError(f"option {name}: {topic} has {index!r}: {number!r}, not a partition and a number")
            places[TopicPartition(topic, int(index))] = number
    return places


def _json(options: Options, name: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(options.text(name))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OptionError(f"option {name} is {example}, not {options.text(name)}")
    return found


def _group_id(options: Options, subscription: Subscription) -> str | None:
    """The group that a stream's progress is published under; the same when the query starts again."""
    if options.has("kafka.group.id"):
        return options.required("kafka.group.id")
    if options.has("groupIdPrefix"):
        digest = hashlib.sha256(repr(subscription).encode()).hexdigest()[:12]
        return f"{options.required('groupIdPrefix')}-{digest}"
    return None
