"""Where the broker's settings come from. There are three layers, and a later one takes precedence: the broker's file,
what is set for the whole cluster, and what is set for this broker.

The file is read at the start. The other two are in the store and change while the broker runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.config.audit import idle_settings, refuse_protection
from ottla.broker.config.definitions import FALLBACK_CHAINS, OWN_SETTINGS, TOPIC_FALLBACKS, BrokerConfig
from ottla.config import (
    ConfigError,
    Definition,
    Described,
    Kind,
    Layer,
    Source,
    Synonym,
    by_synonym,
    describe,
    resolve,
    resolve_set,
)
from ottla.log.topic_defaults import TopicDefaults

LEAST_DEDUPE_BYTES = 1 << 20

_BY_SYNONYM = by_synonym(OWN_SETTINGS.values())


@functools.cache
def broker_settings() -> dict[str, Definition]:
    """Every setting that a broker knows, by name."""
    from ottla.broker.config.kept import KEPT_SETTINGS  # many, and rarely asked for

    return dict(sorted((OWN_SETTINGS | TOPIC_FALLBACKS | KEPT_SETTINGS).items()))


class BrokerSettings:
    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        """From the texts of the broker's file; ConfigError says which cannot be."""
        self.static = dict(static or {})
        refuse_protection(self.static)
        self.of_cluster: dict[str, str] = {}
        self.of_broker: dict[str, str] = {}
        self._watchers: list[Callable[[], None]] = []
        self._refresh()

    def idle(self) -> list[tuple[str, str]]:
        """What was given at the start and changes nothing, each setting with the reason."""
        if self.static.keys() <= OWN_SETTINGS.keys() and not any(
            OWN_SETTINGS[name].is_kept_only for name in self.static
        ):
            return []
        return list(idle_settings(self.static, broker_settings()))

    def set_dynamic(self, of_cluster: Mapping[str, str], of_broker: Mapping[str, str]) -> None:
        """Go by other settings from now on."""
        self.of_cluster, self.of_broker = dict(of_cluster), dict(of_broker)
        self._refresh()
        for watcher in self._watchers:
            watcher()

    def watch(self, changed: Callable[[], None]) -> None:
        """Call it when settings have changed. Code that reads a setting each time does not need that."""
        self._watchers.append(changed)

    def check_dynamic(self, of_cluster: Mapping[str, str], of_broker: Mapping[str, str]) -> None:
        """Whether these could be the settings; ConfigError if not."""
        BrokerSettings(self.static).set_dynamic(of_cluster, of_broker)

    @property
    def layers(self) -> tuple[Layer, ...]:
        return (
            Layer(Source.DYNAMIC_BROKER, self.of_broker),
            Layer(Source.DYNAMIC_DEFAULT_BROKER, self.of_cluster),
            Layer(Source.STATIC_BROKER, self.static),
        )

    def _refresh(self) -> None:
        layers = self.layers
        resolved = resolve_set(_BY_SYNONYM, layers)
        values: dict[str, Any] = {OWN_SETTINGS[name].attribute: value for name, (value, _) in resolved.items()}
        _check_others(layers)
        self.config = BrokerConfig(**values)
        self.topic_defaults = TopicDefaults(layers)
        _check_together(self.config, self.topic_defaults)

    def describe(self) -> list[Described]:
        """What DescribeConfigs answers for this broker: every setting there is, and what else was set."""
        layers, settings = self.layers, broker_settings()
        set_names = {name for layer in layers for name in layer.texts}
        described = [
            _described(definition, layers)
            for name, definition in settings.items()
            if not definition.is_internal or name in set_names
        ]
        unknown = set_names - settings.keys()
        return described + [_described(_unknown(name), layers) for name in sorted(unknown)]

    def describe_cluster(self) -> list[Described]:
        """What DescribeConfigs answers for all brokers together: what was set for them."""
        layers = (Layer(Source.DYNAMIC_DEFAULT_BROKER, self.of_cluster),)
        settings = broker_settings()
        described = [describe(settings.get(name) or _unknown(name), None, layers) for name in sorted(self.of_cluster)]
        return [entry._replace(synonyms=entry.synonyms[:1]) for entry in described]


def _check_together(config: BrokerConfig, defaults: TopicDefaults) -> None:
    """What Kafka refuses of a broker and not by the check of a setting, in its words."""
    if defaults.effective("retention.ms", {})[0] == "0":  # which a topic may have
        raise ConfigError("log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
    if config.log_cleaner_dedupe_buffer_size < LEAST_DEDUPE_BYTES:
        raise ConfigError("log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.")
    if config.max_connections == 0:  # which Kafka takes, and has other ways to be administered by
        raise ConfigError("max.connections must be at least 1, or nobody could ever change it again.")
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        raise ConfigError(
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
        )


def _check_others(layers: tuple[Layer, ...]) -> None:
    """Refuse what cannot be among the settings that the broker does not read itself."""
    names = {name for layer in layers for name in layer.texts} - OWN_SETTINGS.keys()
    for name in names:
        definition = TOPIC_FALLBACKS.get(name) or broker_settings().get(name)
        if definition is not None:
            resolve(definition, layers)


def _described(definition: Definition, layers: tuple[Layer, ...]) -> Described:
    """A setting with its own value; one of several that a topic falls back on tells of the others too."""
    entry = describe(definition, None, layers)
    chain = FALLBACK_CHAINS.get(definition.name)
    return entry if chain is None else entry._replace(synonyms=describe(chain, None, layers).synonyms)


def _unknown(name: str) -> Definition:
    """Nobody knows what it holds, so it may be a secret."""
    return Definition(name, Kind.PASSWORD, None, "", synonyms=(Synonym(name, Kind.PASSWORD),))
