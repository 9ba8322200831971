"""The configurations of single groups, as the store keeps them, and what a consumer group goes by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.config import ConfigError, Described, Kind, Source, at_least, definitions_of, describe, setting
from ottla.controller.cluster import Cluster
from ottla.coordinator.consumer.settings import ConsumerSettings, MigrationPolicy

if TYPE_CHECKING:
    from ottla.broker.config.definitions import BrokerConfig
    from ottla.broker.config.layers import BrokerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """What a group may have of its own. Without, it has what the broker has under the name with "group." in front."""

    consumer_assignment_interval_ms: int = setting(
        "consumer.assignment.interval.ms",
        Kind.INT,
        1000,
        "The least time between two assignments.",
        check=at_least(0),
        synonyms="group.consumer.assignment.interval.ms",
    )
    consumer_heartbeat_interval_ms: int = setting(
        "consumer.heartbeat.interval.ms",
        Kind.INT,
        5000,
        "How often members give a sign of life.",
        check=at_least(1),
        synonyms="group.consumer.heartbeat.interval.ms",
    )
    consumer_session_timeout_ms: int = setting(
        "consumer.session.timeout.ms",
        Kind.INT,
        45_000,
        "How long a silent member stays.",
        check=at_least(1),
        synonyms="group.consumer.session.timeout.ms",
    )


GROUP_SETTINGS = definitions_of(GroupConfig)
_NO_TEXTS: dict[str, str] = {}
SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


class GroupConfigs:
    def __init__(self, cluster: Callable[[], Cluster], settings: BrokerSettings) -> None:
        self._cluster = cluster
        self._broker = settings
        # Of groups with configurations of their own, and of others, with the texts that they are from.
        self._resolved: dict[str, tuple[dict[str, str], ConsumerSettings]] = {}
        self._resolved_from: BrokerConfig | None = None

    def consumer_settings(self, group_id: str) -> ConsumerSettings:
        """What a group goes by at the moment."""
        config = self._broker.config
        if config is not self._resolved_from:
            self._resolved.clear()
            self._resolved_from = config
        texts = self._cluster().group_configs.get(group_id)
        key, texts = ("", _NO_TEXTS) if texts is None else (group_id, texts)
        resolved = self._resolved.get(key)
        if resolved is None or resolved[0] is not texts:
            resolved = self._resolved[key] = texts, _resolve(config, texts)
        return resolved[1]

    def describe(self, group_id: str) -> list[Described]:
        texts = self._cluster().group_configs.get(group_id, {})
        layers = self._broker.layers
        return [
            describe(definition, texts.get(name), layers, Source.GROUP) for name, definition in GROUP_SETTINGS.items()
        ]

    def check(self, texts: Mapping[str, str]) -> None:
        """Whether a group could have these; ConfigError in Kafka's words."""
        unknown = [name for name in texts if name not in GROUP_SETTINGS]
        if unknown:
            raise ConfigError(f"Unknown group config name: {unknown[0]}")
        config = self._broker.config
        values = {name: int(str(GROUP_SETTINGS[name].parse(text))) for name, text in texts.items()}
        for name in sorted(values):
            least, most = _LIMITS[name](config)
            if values[name] < least:
                raise ConfigError(f"{name} must be greater than or equal to {_limit_name(name, 'min')}")
            if values[name] > most:
                raise ConfigError(f"{name} must be less than or equal to {_limit_name(name, 'max')}")
        session_ms = values.get(SESSION_TIMEOUT, config.group_consumer_session_timeout_ms)
        if session_ms <= values.get(HEARTBEAT_INTERVAL, config.group_consumer_heartbeat_interval_ms):
            raise ConfigError(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")


_LIMITS: dict[str, Callable[[BrokerConfig], tuple[int, int]]] = {
    SESSION_TIMEOUT: lambda config: (
        config.group_consumer_min_session_timeout_ms,
        config.group_consumer_max_session_timeout_ms,
    ),
    HEARTBEAT_INTERVAL: lambda config: (
        config.group_consumer_min_heartbeat_interval_ms,
        config.group_consumer_max_heartbeat_interval_ms,
    ),
    ASSIGNMENT_INTERVAL: lambda config: (
        config.group_consumer_min_assignment_interval_ms,
        config.group_consumer_max_assignment_interval_ms,
    ),
}
"""The least and the most that the broker lets a group have."""


def _limit_name(name: str, which: str) -> str:
    return f"group.consumer.{which}.{name.removeprefix('consumer.')}"


def _resolve(config: BrokerConfig, texts: Mapping[str, str]) -> ConsumerSettings:
    """Limits that were narrowed since a group got its configuration hold for it, too."""

    def value(name: str, of_broker: int) -> int:
        if name not in texts:
            return of_broker
        least, most = _LIMITS[name](config)
        return max(least, min(int(texts[name]), most))

    return ConsumerSettings(
        session_timeout_ms=value(SESSION_TIMEOUT, config.group_consumer_session_timeout_ms),
        heartbeat_interval_ms=value(HEARTBEAT_INTERVAL, config.group_consumer_heartbeat_interval_ms),
        assignment_interval_ms=value(ASSIGNMENT_INTERVAL, config.group_consumer_assignment_interval_ms),
        regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        max_size=config.group_consumer_max_size,
        assignors=config.group_consumer_assignors,
        migration_policy=MigrationPolicy(config.group_consumer_migration_policy),
    )
