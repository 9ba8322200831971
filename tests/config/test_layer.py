"""Values and synonyms through the layers of a broker, as Kafka 4.3.1 described them."""

import pytest

from ottla.config import (
    ConfigError,
    Definition,
    Kind,
    Layer,
    Source,
    Synonym,
    at_least,
    by_synonym,
    describe,
    resolve,
    resolve_set,
)

RETENTION = Definition(
    "retention.ms",
    Kind.LONG,
    604_800_000,
    "",
    at_least(-1),
    (
        Synonym("log.retention.ms", Kind.LONG),
        Synonym("log.retention.minutes", Kind.INT, None, 60_000),
        Synonym("log.retention.hours", Kind.INT, 168, 3_600_000),
    ),
)
SEGMENT = Definition(
    "segment.bytes",
    Kind.INT,
    1 << 30,
    "",
    at_least(1 << 20),
    (Synonym("log.segment.bytes", Kind.INT, 1 << 30),),
)
THROTTLED = Definition("leader.replication.throttled.replicas", Kind.LIST, (), "")

BROKER = Layer(Source.DYNAMIC_BROKER, {"log.segment.bytes": "3000000"})
CLUSTER = Layer(Source.DYNAMIC_DEFAULT_BROKER, {"log.retention.ms": "111111", "log.segment.bytes": "4000000"})
FILE = Layer(
    Source.STATIC_BROKER,
    {"log.retention.hours": "24", "log.retention.minutes": "90", "log.segment.bytes": "2000000"},
)


def test_only_what_is_set_is_resolved_and_as_if_alone() -> None:
    settings = by_synonym([RETENTION, SEGMENT, THROTTLED])
    assert resolve_set(settings, []) == {}
    assert resolve_set(settings, [BROKER]) == {"segment.bytes": (3_000_000, Source.DYNAMIC_BROKER)}
    layers = [BROKER, CLUSTER, FILE]
    assert resolve_set(settings, layers) == {
        definition.name: resolve(definition, layers) for definition in (RETENTION, SEGMENT)
    }


def test_without_layers_the_default_holds() -> None:
    assert resolve(RETENTION, []) == (604_800_000, Source.DEFAULT)
    described = describe(SEGMENT, None, [])
    assert (described.text, described.source) == ("1073741824", Source.DEFAULT)
    assert described.synonyms == (("log.segment.bytes", "1073741824", Source.DEFAULT),)


def test_of_several_synonyms_in_a_layer_the_finer_unit_wins() -> None:
    assert resolve(RETENTION, [FILE]) == (90 * 60_000, Source.STATIC_BROKER)


def test_the_strongest_layer_wins() -> None:
    assert resolve(SEGMENT, [BROKER, CLUSTER, FILE]) == (3_000_000, Source.DYNAMIC_BROKER)
    assert resolve(RETENTION, [BROKER, CLUSTER, FILE]) == (111_111, Source.DYNAMIC_DEFAULT_BROKER)


def test_every_set_synonym_is_described_in_order_of_strength() -> None:
    described = describe(SEGMENT, " 5000000", [BROKER, CLUSTER, FILE])
    assert (described.text, described.source) == ("5000000", Source.TOPIC)
    assert described.synonyms == (
        ("segment.bytes", "5000000", Source.TOPIC),
        ("log.segment.bytes", "3000000", Source.DYNAMIC_BROKER),
        ("log.segment.bytes", "4000000", Source.DYNAMIC_DEFAULT_BROKER),
        ("log.segment.bytes", "2000000", Source.STATIC_BROKER),
        ("log.segment.bytes", "1073741824", Source.DEFAULT),
    )


def test_weaker_units_are_described_after_the_main_one() -> None:
    described = describe(RETENTION, None, [CLUSTER, FILE])
    assert (described.text, described.source) == ("111111", Source.DYNAMIC_DEFAULT_BROKER)
    assert described.synonyms == (
        ("log.retention.ms", "111111", Source.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.minutes", "90", Source.STATIC_BROKER),
        ("log.retention.hours", "24", Source.STATIC_BROKER),
        ("log.retention.hours", "168", Source.DEFAULT),
    )


def test_without_the_main_synonym_kafka_describes_none() -> None:
    described = describe(RETENTION, None, [FILE])
    assert (described.text, described.source, described.synonyms) == ("5400000", Source.DEFAULT, ())


def test_a_setting_without_synonyms_has_only_its_own_value() -> None:
    assert describe(THROTTLED, None, [FILE]).synonyms == ()
    described = describe(THROTTLED, "0:1 , 1:1", [FILE])
    assert described.synonyms == (("leader.replication.throttled.replicas", "0:1,1:1", Source.TOPIC),)


def test_a_bad_broker_setting_is_blamed_by_its_own_name() -> None:
    with pytest.raises(ConfigError, match=r"^Invalid value x for configuration log\.retention\.hours: Not"):
        resolve(RETENTION, [Layer(Source.STATIC_BROKER, {"log.retention.hours": "x"})])
    with pytest.raises(ConfigError, match=r"^Invalid value 5 for configuration log\.segment\.bytes: Value"):
        resolve(SEGMENT, [Layer(Source.STATIC_BROKER, {"log.segment.bytes": "5"})])
