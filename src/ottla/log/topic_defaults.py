"""What a topic's configuration is, from the topic's overrides and the broker's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from ottla.config import ConfigError, Described, Layer, Source, Value, by_synonym, describe, resolve_set, text_of
from ottla.config.value import invalid_value
from ottla.log.topic_config import DELETE, TOPIC_SETTINGS, TopicConfig

AS_TOTAL_RETENTION = -2
UNLIMITED = -1

_BY_SYNONYM = by_synonym(TOPIC_SETTINGS.values())


class TopicDefaults:
    """What topics have where they do not say otherwise: the broker's settings over Kafka's defaults.

    Layers are the broker's, the strongest first. Equal overrides get the same TopicConfig while any
    log holds it, so thousands of partitions share one.
    """

    def __init__(self, layers: Sequence[Layer] = (), *, has_remote_storage: bool = False) -> None:
        self._layers = tuple(layers)
        self._has_remote_storage = has_remote_storage
        self._resolved = resolve_set(_BY_SYNONYM, self._layers)
        self._values = {TOPIC_SETTINGS[name].attribute: value for name, (value, _) in self._resolved.items()}
        self._shared: WeakValueDictionary[frozenset[tuple[str, str | None]], TopicConfig]
        self._shared = WeakValueDictionary()

    def topic(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        """The configuration of a topic that overrides these texts; ConfigError in Kafka's words.

        Settings that contradict each other are taken: those of the broker may have changed since the topic's were kept.
        """
        key = frozenset(overrides.items())
        config = self._shared.get(key)
        if config is None:
            config = self._make(overrides)
            self._shared[key] = config
        return config

    def check(self, overrides: Mapping[str, str | None]) -> None:
        """Whether a topic may be given these texts; ConfigError in Kafka's words, also for what contradicts itself."""
        config = self.topic(overrides)
        _check_compaction_lags(config)
        if config.remote_storage_enable:
            _check_remote_storage(config, self._has_remote_storage)

    def describe(self, overrides: Mapping[str, str]) -> list[Described]:
        """Each setting with value, source and synonyms, as DescribeConfigs answers it."""
        return [
            describe(definition, overrides.get(name), self._layers)
            for name, definition in TOPIC_SETTINGS.items()
            if not definition.is_internal or name in overrides
        ]

    def effective(self, name: str, overrides: Mapping[str, str]) -> tuple[str | None, Source]:
        """A setting's text and where it was set, as CreateTopics answers it: an override as it was given."""
        if name in overrides:
            return overrides[name], Source.TOPIC
        value, source = self._resolved.get(name) or (TOPIC_SETTINGS[name].default, Source.DEFAULT)
        return text_of(value), source

    def _make(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        values: dict[str, Any] = self._values | _parse(overrides)
        return TopicConfig(**values)


def _parse(overrides: Mapping[str, str | None]) -> dict[str, Value]:
    nulls = [name for name, text in overrides.items() if text is None]
    if nulls:
        raise ConfigError(f"Null value not supported for topic configs: {','.join(nulls)}")
    for name in overrides:
        if name not in TOPIC_SETTINGS:
            raise ConfigError(f"Unknown topic config name: {name}")
    return {
        definition.attribute: definition.parse(text)
        for name, definition in TOPIC_SETTINGS.items()
        if (text := overrides.get(name)) is not None
    }


def _check_compaction_lags(config: TopicConfig) -> None:
    least, most = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if least > most:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        )


def _check_remote_storage(config: TopicConfig, has_remote_storage: bool) -> None:
    if not has_remote_storage:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    if config.cleanup_policy not in ((), (DELETE,)):
        raise ConfigError(
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."
        )
    _check_local_retention("bytes", config.retention_bytes, config.local_retention_bytes)
    _check_local_retention("ms", config.retention_ms, config.local_retention_ms)
    if config.remote_log_copy_disable:
        _check_retentions_agree("bytes", config.retention_bytes, config.local_retention_bytes)
        _check_retentions_agree("ms", config.retention_ms, config.local_retention_ms)


def _check_local_retention(unit: str, total: int, local: int) -> None:
    if total <= UNLIMITED or local == AS_TOTAL_RETENTION:
        return
    if local == UNLIMITED:
        complaint = f"Value must not be -1 as retention.{unit} value is set as {total}."
        raise invalid_value(f"local.retention.{unit}", local, complaint)
    if local > total:
        complaint = f"Value must not be more than retention.{unit} property value: {total}"
        raise invalid_value(f"local.retention.{unit}", local, complaint)


def _check_retentions_agree(unit: str, total: int, local: int) -> None:
    if local not in (AS_TOTAL_RETENTION, total):
        raise ConfigError(
            f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and "
            f"`retention.{unit}` must be set to the identical value because there will be no more logs "
            "copied to the remote storage."
        )


KAFKA_DEFAULTS = TopicDefaults()
