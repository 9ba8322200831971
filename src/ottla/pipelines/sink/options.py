"""What a sink is asked for: where records go, with which guarantee, and as whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client import Producer
from ottla.pipelines.client_options import Cluster, cluster_of
from ottla.pipelines.options import CLIENT_NAMES, INT32, OptionError, Options

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
_COMMON = (
    *CLIENT_NAMES, "topic", "delivery", "includeTimestamp", "kafka.acks", "kafka.compression.type",
    "kafka.batch.size", "kafka.linger.ms", "kafka.buffer.memory", "kafka.delivery.timeout.ms", "kafka.max.block.ms",
    "kafka.transactional.id", "kafka.transaction.timeout.ms",
)  # fmt: skip
BATCH_NAMES = _COMMON
STREAM_NAMES = (*_COMMON, "generation", "continueFromBatch", "checkpointLocation", "queryName")
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class ProducerSettings:
    acks: str
    codec: str
    batch_bytes: int
    linger_ms: int
    buffer_bytes: int
    delivery_timeout_ms: int
    max_block_ms: int
    transaction_timeout_ms: int


@dataclass(frozen=True)
class SinkOptions:
    cluster: Cluster
    topic: str | None
    """For all rows; else each row names its own."""
    is_exactly_once: bool
    with_timestamp: bool
    transactional_id: str | None
    generation: int
    continue_from_batch: int | None
    checkpoint: str | None
    """Of the query, where it is an option and no setting of the session."""
    settings: ProducerSettings

    def producer(self, transactional_id: str | None = None) -> Producer:
        settings = self.settings
        return Producer(
            self.cluster.bootstrap, acks=settings.acks, codec=settings.codec, batch_bytes=settings.batch_bytes,
            linger_ms=settings.linger_ms, buffer_bytes=settings.buffer_bytes, max_block_ms=settings.max_block_ms,
            delivery_timeout_ms=settings.delivery_timeout_ms, transactional_id=transactional_id,
            transaction_timeout_ms=settings.transaction_timeout_ms, create_topics=True, options=self.cluster.options,
        )  # fmt: skip


def sink_options(given: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """OptionError for whatever cannot be right. Only streams are exactly-once without being asked."""
    options = Options(given, STREAM_NAMES if is_stream else BATCH_NAMES, "the sink ottla")
    default = EXACTLY_ONCE if is_stream else AT_LEAST_ONCE
    is_exactly_once = options.choice("delivery", (EXACTLY_ONCE, AT_LEAST_ONCE), default) == EXACTLY_ONCE
    topic = options.text("topic") or None
    settings = _settings(options)
    if is_exactly_once and settings.acks != "all":
        raise OptionError("option kafka.acks is all where the delivery is exactly-once")
    return SinkOptions(
        cluster=cluster_of(options),
        topic=topic,
        is_exactly_once=is_exactly_once,
        with_timestamp=options.flag("includeTimestamp", False),
        transactional_id=_transactional_id(options, topic, is_needed=is_stream and is_exactly_once),
        generation=options.number("generation", 0),
        continue_from_batch=options.number("continueFromBatch", None),
        checkpoint=options.text("checkpointLocation") or None,
        settings=settings,
    )


def _transactional_id(options: Options, topic: str | None, *, is_needed: bool) -> str | None:
    """As whom a query writes, also when it starts again, perhaps without its checkpoint."""
    given = options.text("kafka.transactional.id")
    if given or not is_needed:
        return given or None
    if topic is None:
        raise OptionError(
            "option kafka.transactional.id is missing: a stream whose rows name their topics needs a name of its own "
            "that stays the same when it starts again"
        )
    return f"spark-sink-{topic}"


def _settings(options: Options) -> ProducerSettings:
    acks = options.choice("kafka.acks", ("all", "-1", "1", "0"), "all")
    return ProducerSettings(
        acks="all" if acks == "-1" else acks,
        codec=options.choice("kafka.compression.type", _CODECS, "none"),
        batch_bytes=options.number("kafka.batch.size", 512 << 10, 1, INT32),
        linger_ms=options.number("kafka.linger.ms", 5, most=INT32),
        buffer_bytes=options.number("kafka.buffer.memory", 32 << 20, least=1),
        delivery_timeout_ms=options.number("kafka.delivery.timeout.ms", 120_000, 1, INT32),
        max_block_ms=options.number("kafka.max.block.ms", 60_000, 1, INT32),
        transaction_timeout_ms=options.number("kafka.transaction.timeout.ms", 60_000, 1, INT32),
    )
