"""Which of the broker's settings can be changed while it runs, as with Kafka."""

from __future__ import annotations

from ottla.broker.config.layers import broker_settings
from ottla.log.topic_config import TOPIC_SETTINGS

# Of those that a topic's setting falls back on, only the first can be changed.
_FALLBACKS = frozenset(setting.synonyms[0].name for setting in TOPIC_SETTINGS.values() if setting.synonyms)
_DYNAMIC = _FALLBACKS | frozenset(
    {
        "background.threads",
        "config.providers",
        "cordoned.log.dirs",
        "follower.fetch.last.tiered.offset.enable",
        "group.consumer.assignment.interval.ms",
        "group.coordinator.cached.buffer.max.bytes",
        "listener.security.protocol.map",
        "listeners",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "metric.reporters",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "principal.builder.class",
        "producer.id.expiration.ms",
        "transaction.partition.verification.enable",
    }
)

ONE_BROKER_ONLY = frozenset({"listeners", "listener.security.protocol.map"})


def is_dynamic(name: str) -> bool:
    """Whether a setting can be changed; one that nobody knows can, as it does nothing."""
    return name in _DYNAMIC or name not in broker_settings()
