"""The configuration of a topic: Kafka 4.3's names, kinds, defaults, checks and synonyms.

`TopicConfig` is what the log reads: plain typed attributes. topic_defaults.py makes one from texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.config import (
    Between,
    BetweenOr,
    ConfigError,
    Kind,
    ListOf,
    OneOf,
    Synonym,
    Value,
    at_least,
    definitions_of,
    setting,
)

if TYPE_CHECKING:
    from random import Random

MINUTE_MS = 60 * 1000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
MEBIBYTE = 1 << 20
MOST = (1 << 63) - 1  # Java's Long.MAX_VALUE: never, without limit

DELETE = "delete"
COMPACT = "compact"
LOG_APPEND_TIME = "LogAppendTime"
AS_PRODUCED = "producer"
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

THROTTLED = re.compile(r"(?:[0-9]+:[0-9]+)?")


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """Pairs of partition and broker, or `*` for every replica."""

    def __call__(self, name: str, value: Value) -> Value:
        replicas = value if isinstance(value, tuple) else ()
        if all(map(THROTTLED.fullmatch, replicas)) or "".join(replicas) == "*":
            return value
        raise ConfigError(
            f"Invalid value [{', '.join(replicas)}] for configuration {name}: {name} must be the literal '*' "
            f"or a list of replicas in the following format: {self}"
        )

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class TopicConfig:
    """What a topic's logs go by. Without arguments: Kafka's defaults.

    Values given by keywords are taken as they are; `TopicDefaults` makes one from texts and checks them.
    `segment_bytes` is the size the log rolls at: that of internal.segment.bytes where it is given.
    """

    # In Kafka's order: of several bad values, the first in this order is the one complained of.
    segment_bytes: int = setting(
        "segment.bytes",
        Kind.INT,
        1024 * MEBIBYTE,
        "The size at which a segment is full and the next one begins.",
        check=at_least(MEBIBYTE),
        synonyms="log.segment.bytes",
    )
    segment_ms: int = setting(
        "segment.ms",
        Kind.LONG,
        7 * DAY_MS,
        "The age at which a segment ends though it is not full, so that it can be deleted or compacted.",
        check=at_least(1),
        synonyms=(
            Synonym("log.roll.ms", Kind.LONG),
            Synonym("log.roll.hours", Kind.INT, 168, HOUR_MS),
        ),
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        Kind.LONG,
        0,
        "The most that is taken off segment.ms, at random, so that not all segments end at the same time.",
        check=at_least(0),
        synonyms=(
            Synonym("log.roll.jitter.ms", Kind.LONG),
            Synonym("log.roll.jitter.hours", Kind.INT, 0, HOUR_MS),
        ),
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        Kind.INT,
        10 * MEBIBYTE,
        "The most an offset index or a time index may take; a segment whose index is full ends.",
        check=at_least(4),
        synonyms="log.index.size.max.bytes",
    )
    flush_messages: int = setting(
        "flush.messages",
        Kind.LONG,
        MOST,
        "After how many records they are forced to the disk, before the last of them is acknowledged. 1: each append.",
        check=at_least(1),
        synonyms="log.flush.interval.messages",
    )
    flush_ms: int = setting(
        "flush.ms",
        Kind.LONG,
        MOST,
        "How long a record may be in the log without having been forced to the disk.",
        check=at_least(0),
        synonyms=(
            Synonym("log.flush.interval.ms", Kind.LONG),
            Synonym("log.flush.scheduler.interval.ms", Kind.LONG, MOST),
        ),
    )
    retention_bytes: int = setting(
        "retention.bytes",
        Kind.LONG,
        -1,
        "The size of a partition above which its oldest segments are deleted; below 0: no limit.",
        synonyms="log.retention.bytes",
    )
    retention_ms: int = setting(
        "retention.ms",
        Kind.LONG,
        7 * DAY_MS,
        "How long records are kept before their segment is deleted; -1: for ever.",
        check=at_least(-1),
        synonyms=(
            Synonym("log.retention.ms", Kind.LONG, is_limit=True),
            Synonym("log.retention.minutes", Kind.INT, None, MINUTE_MS, is_limit=True),
            Synonym("log.retention.hours", Kind.INT, 168, HOUR_MS, is_limit=True),
        ),
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        Kind.INT,
        MEBIBYTE + 12,
        "The largest record batch that is taken, compressed as it comes.",
        check=at_least(0),
        synonyms="message.max.bytes",
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        Kind.INT,
        4096,
        "How many bytes of records lie between two entries of an index.",
        check=at_least(0),
        synonyms="log.index.interval.bytes",
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        Kind.LONG,
        DAY_MS,
        "How long compaction keeps the tombstone of a deleted key, for readers that are behind to see it.",
        check=at_least(0),
        synonyms="log.cleaner.delete.retention.ms",
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        Kind.LONG,
        0,
        "The age below which a record is not compacted away.",
        check=at_least(0),
        synonyms="log.cleaner.min.compaction.lag.ms",
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        Kind.LONG,
        MOST,
        "The age above which a record makes its log due for compaction, whatever the dirty ratio.",
        check=at_least(1),
        synonyms="log.cleaner.max.compaction.lag.ms",
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        Kind.LONG,
        MINUTE_MS,
        "How long the files of a deleted segment stay on the disk, for reads under way.",
        check=at_least(0),
        synonyms="log.segment.delete.delay.ms",
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        0.5,
        "The part of a log that must have been written since the last compaction to make the next one due.",
        check=Between(0, 1),
        synonyms="log.cleaner.min.cleanable.ratio",
    )
    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        Kind.LIST,
        (DELETE,),
        "What happens to old segments: delete drops them by age and size, compact keeps the last record of "
        "each key. Both may be given; an empty list keeps everything.",
        check=ListOf((COMPACT, DELETE)),
        synonyms="log.cleanup.policy",
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        False,
        "Whether a replica that is not in sync may lead when no other is left, at the price of lost records.",
        synonyms="unclean.leader.election.enable",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        Kind.INT,
        1,
        "How many replicas, the leader among them, must be in sync for a write with acks=all to be taken.",
        check=at_least(1),
        synonyms="min.insync.replicas",
    )
    compression_type: str = setting(
        "compression.type",
        Kind.STRING,
        AS_PRODUCED,
        "The codec batches are stored in: producer leaves them as they come, uncompressed unpacks them.",
        check=OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", AS_PRODUCED)),
        synonyms="compression.type",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        Kind.INT,
        -1,
        "The level of compression where compression.type is gzip; -1: gzip's own default.",
        check=BetweenOr(1, 9, -1),
        synonyms="compression.gzip.level",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        Kind.INT,
        9,
        "The level of compression where compression.type is lz4.",
        check=Between(1, 17),
        synonyms="compression.lz4.level",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        Kind.INT,
        3,
        "The level of compression where compression.type is zstd.",
        check=Between(-131072, 22),
        synonyms="compression.zstd.level",
    )
    preallocate: bool = setting(
        "preallocate",
        Kind.BOOLEAN,
        False,
        "Whether a new segment takes its whole size on the disk at once.",
        synonyms="log.preallocate",
        is_kept_only=True,
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        "Whose clock stamps a record: CreateTime is the producer's, LogAppendTime the broker's.",
        check=OneOf(("CreateTime", LOG_APPEND_TIME)),
        synonyms="log.message.timestamp.type",
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        MOST,
        "How far a producer's timestamp may lie behind the broker's clock for a record to be taken.",
        check=at_least(0),
        synonyms="log.message.timestamp.before.max.ms",
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        HOUR_MS,
        "How far a producer's timestamp may lie ahead of the broker's clock for a record to be taken.",
        check=at_least(0),
        synonyms="log.message.timestamp.after.max.ms",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas",
        Kind.LIST,
        (),
        "The replicas whose leaders send no faster than the broker's replication quota.",
        check=ThrottledReplicas(),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas",
        Kind.LIST,
        (),
        "The replicas whose followers fetch no faster than the broker's replication quota.",
        check=ThrottledReplicas(),
    )
    remote_storage_enable: bool = setting(
        "remote.storage.enable",
        Kind.BOOLEAN,
        False,
        "Whether old segments move to remote storage.",
        is_kept_only=True,
    )
    local_retention_ms: int = setting(
        "local.retention.ms",
        Kind.LONG,
        -2,
        "With remote storage: how long records stay on the broker's disk; -2: retention.ms.",
        check=at_least(-2),
        synonyms="log.local.retention.ms",
        is_kept_only=True,
    )
    local_retention_bytes: int = setting(
        "local.retention.bytes",
        Kind.LONG,
        -2,
        "With remote storage: how much of a partition stays on the broker's disk; -2: retention.bytes.",
        check=at_least(-2),
        synonyms="log.local.retention.bytes",
        is_kept_only=True,
    )
    remote_log_copy_disable: bool = setting(
        "remote.log.copy.disable",
        Kind.BOOLEAN,
        False,
        "With remote storage: whether no more segments are copied there, and what is there is only read.",
        is_kept_only=True,
    )
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable",
        Kind.BOOLEAN,
        False,
        "Whether switching remote storage off for the topic deletes what is there.",
        is_kept_only=True,
    )
    internal_segment_bytes: int | None = setting(
        "internal.segment.bytes",
        Kind.INT,
        None,
        "A segment size below the least of segment.bytes, for tests.",
        is_internal=True,
    )

    # What follows from the settings, worked out once.
    is_compacted: bool = field(init=False, repr=False, compare=False)
    is_deleted: bool = field(init=False, repr=False, compare=False)
    is_log_append_time: bool = field(init=False, repr=False, compare=False)
    target_codec: int | None = field(init=False, repr=False, compare=False)  # None: as produced
    target_level: int | None = field(init=False, repr=False, compare=False)  # None: the codec has no levels
    max_segment_ms: int = field(init=False, repr=False, compare=False)  # segment.ms, sooner for compaction
    has_flush_time: bool = field(init=False, repr=False, compare=False)
    has_flush_limits: bool = field(init=False, repr=False, compare=False)  # in time, or in records

    def __post_init__(self) -> None:
        is_compacted = COMPACT in self.cleanup_policy
        has_flush_time = self.flush_ms < MOST
        derived = {
            "has_flush_time": has_flush_time,
            "has_flush_limits": has_flush_time or self.flush_messages < MOST,
            "is_compacted": is_compacted,
            "is_deleted": DELETE in self.cleanup_policy,
            "is_log_append_time": self.message_timestamp_type == LOG_APPEND_TIME,
            "target_codec": CODECS.get(self.compression_type),
            "target_level": getattr(self, f"compression_{self.compression_type}_level", None),
            "max_segment_ms": min(self.segment_ms, self.max_compaction_lag_ms) if is_compacted else self.segment_ms,
        }
        if self.internal_segment_bytes is not None:
            derived["segment_bytes"] = self.internal_segment_bytes
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def preallocated_bytes(self) -> int:
        """How large a new segment's file is from the start."""
        return self.segment_bytes if self.preallocate else 0

    def draw_segment_jitter_ms(self, random: Random) -> int:
        """How much sooner than `max_segment_ms` one segment ends."""
        most = min(self.segment_jitter_ms, self.segment_ms)
        return random.randrange(most) if most > 0 else 0


TOPIC_SETTINGS = definitions_of(TopicConfig)
