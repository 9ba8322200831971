"""The broker's settings are Kafka's: by name, kind, default and whether they can be changed while it runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.config.audit import LEFT_OUT
from ottla.broker.config.definitions import OWN_SETTINGS
from ottla.broker.config.dynamic import is_dynamic
from ottla.broker.config.layers import BrokerSettings, broker_settings
from ottla.config import ConfigError, Described, Source, text_of
from tests.broker.configuration_page import PAGE, TABLE, table

# What a broker of Apache Kafka 4.3.1 describes; what is internal, only where it is set.
FACTS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "broker_configs.json").read_text(encoding="utf-8")
)
SOURCES = Path(__file__).parents[2] / "src" / "ottla"
READERS = ("broker", "cli")  # the rooms that read them
OTHER_DEFAULTS = {
    "node.id",  # Kafka has none, and does not start without
    "principal.builder.class",  # Kafka's is a class of its own
    "socket.receive.buffer.bytes",  # a fixed size, as Kafka's, keeps Linux from adapting it
    "socket.send.buffer.bytes",
}


@pytest.mark.parametrize("name", broker_settings())
def test_a_setting_is_as_kafka_has_it(name: str) -> None:
    definition, fact = broker_settings()[name], FACTS[name]
    assert definition.kind.name == fact["kind"]
    assert is_dynamic(name) != fact["read_only"]
    assert definition.is_internal == fact.get("internal", False)
    if name not in OTHER_DEFAULTS:
        assert text_of(definition.default) == fact["default"]
    assert definition.documentation.endswith(".")
    if definition.default is not None:
        assert definition.validate(name, definition.default) == definition.default


@pytest.mark.parametrize("name", OWN_SETTINGS)
def test_a_setting_acts_where_code_reads_it(name: str) -> None:
    definition = OWN_SETTINGS[name]
    code = [path.read_text(encoding="utf-8") for room in READERS for path in (SOURCES / room).rglob("*.py")]
    is_read = any(f"config.{definition.attribute}" in text for text in code)
    assert is_read != definition.is_kept_only, f"{name}: is_kept_only says otherwise than the code"


def test_what_is_left_out_is_of_what_ottla_does_not_have() -> None:
    missing = set(FACTS) - set(broker_settings())
    assert {name for name in missing if not name.startswith(LEFT_OUT)} == set()
    assert not {name for name in broker_settings() if name.startswith(LEFT_OUT)}


def described(settings: BrokerSettings, name: str) -> Described:
    return next(entry for entry in settings.describe() if entry.name == name)


def test_the_layers_in_their_order() -> None:
    settings = BrokerSettings({"max.connections": "1", "num.partitions": "4"})
    assert (settings.config.max_connections, settings.config.num_partitions) == (1, 4)
    settings.set_dynamic({"max.connections": "2"}, {})
    assert settings.config.max_connections == 2
    settings.set_dynamic({"max.connections": "2"}, {"max.connections": "3"})
    assert settings.config.max_connections == 3
    entry = described(settings, "max.connections")
    assert (entry.text, entry.source) == ("3", Source.DYNAMIC_BROKER)
    assert [(synonym.text, synonym.source) for synonym in entry.synonyms] == [
        ("3", Source.DYNAMIC_BROKER),
        ("2", Source.DYNAMIC_DEFAULT_BROKER),
        ("1", Source.STATIC_BROKER),
        ("2147483647", Source.DEFAULT),
    ]


def test_what_nobody_knows_is_no_mistake() -> None:
    settings = BrokerSettings({"foo": "1", "background.threads": "3"})
    assert described(settings, "foo").text is None
    assert described(settings, "background.threads").text == "3"


def test_what_is_internal_is_described_where_it_is_set() -> None:
    name = "group.consumer.regex.refresh.interval.ms"
    assert name not in {entry.name for entry in BrokerSettings().describe()}
    entry = described(BrokerSettings({name: "20000"}), name)
    assert (entry.text, entry.source) == ("20000", Source.STATIC_BROKER)


def test_topics_take_their_values_from_the_broker() -> None:
    settings = BrokerSettings({"log.retention.hours": "2", "message.max.bytes": "77"})
    config = settings.topic_defaults.topic({})
    assert (config.retention_ms, config.max_message_bytes) == (7_200_000, 77)
    assert described(settings, "log.retention.ms").text is None
    assert described(settings, "log.retention.hours").text == "2"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"log.retention.hours": "0"}, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        ({"log.retention.minutes": "0"}, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        (
            {"log.cleaner.dedupe.buffer.size": "1000"},
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
        ({"num.partitions": "0"}, "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ({"num.partitions": "x"}, "Invalid value x for configuration num.partitions: Not a number of type INT"),
        ({"background.threads": "0"}, "Invalid value 0 for configuration background.threads: Value must be at least 1"),
        (
            {"group.consumer.regex.refresh.interval.ms": "9999"},
            "Invalid value 9999 for configuration group.consumer.regex.refresh.interval.ms: "
            "Value must be at least 10000",
        ),
        ({"fetch.max.bytes": "1"}, "Invalid value 1 for configuration fetch.max.bytes: Value must be at least 1024"),
        (
            {"log.cleanup.policy": "wild"},
            "Invalid value wild for configuration log.cleanup.policy: String must be one of: compact, delete",
        ),
    ],
)
def test_what_cannot_be_is_told_at_the_start_and_changes_nothing_later(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerSettings(texts)
    assert str(refused.value) == message
    settings = BrokerSettings()
    with pytest.raises(ConfigError):
        settings.check_dynamic(texts, {})
    assert settings.of_cluster == {}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"authorizer.class.name": "org.example.Authorizer"}, "authorizer.class.name: Ottla has no access control"),
        ({"super.users": "User:root"}, "super.users: Ottla has no access control"),
        ({"ssl.keystore.location": "/keys"}, "ssl.keystore.location: Ottla has no TLS"),
        (
            {"listener.name.outside.ssl.client.auth": "required"},
            "listener.name.outside.ssl.client.auth: Ottla has no TLS",
        ),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "sasl.enabled.mechanisms: Ottla has no logins"),
        (
            {"listener.name.a.plain.sasl.jaas.config": "x"},
            "listener.name.a.plain.sasl.jaas.config: Ottla has no logins",
        ),
        ({"delegation.token.secret.key": "x"}, "delegation.token.secret.key: Ottla has no delegation tokens"),
        ({"create.topic.policy.class.name": "x"}, "create.topic.policy.class.name: Ottla has no policies for topics"),
        ({"principal.builder.class": "x"}, "principal.builder.class: Ottla has no principals"),
        ({"security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol: Ottla speaks PLAINTEXT"),
    ],
)
def test_protection_that_is_not_there_is_refused(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerSettings(texts)
    assert str(refused.value).startswith(message)
    BrokerSettings({"authorizer.class.name": "", "security.inter.broker.protocol": "PLAINTEXT"})


def test_what_changes_nothing_is_told_with_the_nearest_that_would() -> None:
    settings = BrokerSettings(
        {
            "log.retention.hour": "7",
            "num.io.threads": "9",
            "remote.log.storage.system.enable": "true",
            "xyzzy": "1",
            "num.partitions": "2",
            "log.retention.hours": "3",
        }
    )
    assert settings.idle() == [
        ("log.retention.hour", "there is no such setting; the nearest is log.retention.hours"),
        ("num.io.threads", "Ottla keeps and describes it, and does nothing with it"),
        ("remote.log.storage.system.enable", "Ottla does not have what it is for"),
        ("xyzzy", "there is no such setting"),
    ]
    assert BrokerSettings({"num.partitions": "2"}).idle() == []


def test_the_page_is_that_of_the_code() -> None:
    found = TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    assert found[0] == table(), "run `python -m tests.broker.configuration_page`"
