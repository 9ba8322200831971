"""Topic configurations against what Apache Kafka 4.3.1 answered (tests/config/topic_configs.json)."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config import ConfigError, Layer, Source
from ottla.log.topic_config import TOPIC_SETTINGS, TopicConfig
from ottla.log.topic_defaults import KAFKA_DEFAULTS, TopicDefaults

FACTS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "config" / "topic_configs.json").read_text(encoding="utf-8")
)
SOURCES = {
    "DEFAULT_CONFIG": Source.DEFAULT,
    "STATIC_BROKER_CONFIG": Source.STATIC_BROKER,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": Source.DYNAMIC_DEFAULT_BROKER,
}


def answer_to(configs: dict[str, str | None], defaults: TopicDefaults = KAFKA_DEFAULTS) -> str | None:
    """The complaint about the overrides; None if they are good."""
    try:
        defaults.check(configs)
    except ConfigError as error:
        return str(error)
    return None


@pytest.mark.parametrize("fact", FACTS["answers"], ids=lambda fact: ascii(fact["configs"])[:80])
def test_answers_as_kafka_does(fact: dict[str, Any]) -> None:
    assert answer_to(fact["configs"]) == fact["error"]


def test_describes_as_kafka_does() -> None:
    # A cluster formatted by Kafka 4.3 carries this one setting from the start.
    layers = [Layer(Source.DYNAMIC_DEFAULT_BROKER, {"min.insync.replicas": "1"})]
    described = {setting.name: setting for setting in TopicDefaults(layers).describe({})}
    assert described.keys() == FACTS["described"].keys()
    assert len(described) == 33
    for name, fact in FACTS["described"].items():
        ours = described[name]
        assert ours.kind.name == fact["kind"], name
        assert ours.text == fact["value"], name
        assert ours.source == SOURCES[fact["source"]], name
        assert ours.is_sensitive == fact["sensitive"], name
        assert [list(synonym) for synonym in ours.synonyms] == [
            [synonym, text, SOURCES[source]] for synonym, text, source in fact["synonyms"]
        ], name


# Kafka's answers where remote storage is set up in the broker.
REMOTE: dict[str, str | None] = {"remote.storage.enable": "true"}
WITH_REMOTE_STORAGE: list[tuple[dict[str, str | None], str | None]] = [
    ({}, None),
    (
        {"cleanup.policy": "compact"},
        "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list.",
    ),
    (
        {"cleanup.policy": "delete,compact"},
        "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list.",
    ),
    ({"cleanup.policy": ""}, None),
    (
        {"retention.bytes": "100", "local.retention.bytes": "101"},
        "Invalid value 101 for configuration local.retention.bytes: Value must not be more than "
        "retention.bytes property value: 100",
    ),
    (
        {"retention.bytes": "100", "local.retention.bytes": "-1"},
        "Invalid value -1 for configuration local.retention.bytes: Value must not be -1 as retention.bytes "
        "value is set as 100.",
    ),
    ({"retention.bytes": "-1", "local.retention.bytes": "5"}, None),
    (
        {"retention.ms": "100", "local.retention.ms": "101"},
        "Invalid value 101 for configuration local.retention.ms: Value must not be more than retention.ms "
        "property value: 100",
    ),
    (
        {"retention.ms": "100", "local.retention.ms": "-1"},
        "Invalid value -1 for configuration local.retention.ms: Value must not be -1 as retention.ms value is "
        "set as 100.",
    ),
    ({"retention.ms": "-1", "local.retention.ms": "5"}, None),
    (
        {"remote.log.copy.disable": "true", "retention.ms": "100", "local.retention.ms": "50"},
        "When `remote.log.copy.disable` is set to true, the `local.retention.ms` and `retention.ms` must be "
        "set to the identical value because there will be no more logs copied to the remote storage.",
    ),
    (
        {"remote.log.copy.disable": "true", "retention.bytes": "100", "local.retention.bytes": "50"},
        "When `remote.log.copy.disable` is set to true, the `local.retention.bytes` and `retention.bytes` must "
        "be set to the identical value because there will be no more logs copied to the remote storage.",
    ),
    ({"remote.log.copy.disable": "true"}, None),
]


@pytest.mark.parametrize(("configs", "error"), WITH_REMOTE_STORAGE)
def test_answers_as_kafka_does_with_remote_storage(configs: dict[str, str | None], error: str | None) -> None:
    assert answer_to(REMOTE | configs, TopicDefaults(has_remote_storage=True)) == error


def test_every_setting_is_an_attribute_of_its_name() -> None:
    config = TopicConfig()
    for definition in TOPIC_SETTINGS.values():
        assert getattr(config, definition.attribute) == definition.default
        assert definition.documentation.endswith(".")


def test_defaults_pass_their_own_checks() -> None:
    for definition in TOPIC_SETTINGS.values():
        assert definition.validate(definition.name, definition.default) == definition.default


def test_broker_settings_are_the_defaults_of_topics() -> None:
    static = Layer(Source.STATIC_BROKER, {"log.retention.hours": "24", "log.roll.jitter.hours": "1"})
    defaults = TopicDefaults([static])
    config = defaults.topic({"segment.ms": "5"})
    assert (config.retention_ms, config.segment_jitter_ms, config.segment_ms) == (86_400_000, 3_600_000, 5)


def test_checks_between_settings_see_the_brokers_too() -> None:
    defaults = TopicDefaults([Layer(Source.STATIC_BROKER, {"log.cleaner.max.compaction.lag.ms": "5"})])
    complaint = "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
    assert answer_to({"min.compaction.lag.ms": "10"}, defaults) == complaint


def test_created_topics_answer_overrides_as_given() -> None:
    static = Layer(Source.STATIC_BROKER, {"log.retention.minutes": "90"})
    defaults = TopicDefaults([static])
    overrides = {"segment.ms": " 12 "}
    assert defaults.effective("segment.ms", overrides) == (" 12 ", Source.TOPIC)
    assert defaults.effective("retention.ms", overrides) == ("5400000", Source.STATIC_BROKER)
    assert defaults.effective("segment.bytes", overrides) == ("1073741824", Source.DEFAULT)


def test_descriptions_show_the_value_not_the_text_it_was_given_as() -> None:
    overrides = {
        "segment.ms": " 12 ",
        "cleanup.policy": "compact , delete",
        "min.cleanable.dirty.ratio": "0x1p-1",
        "unclean.leader.election.enable": " TRUE",
        "max.message.bytes": "+5",
    }
    described = {setting.name: setting.text for setting in KAFKA_DEFAULTS.describe(overrides)}
    shown = {name: described[name] for name in overrides}
    assert shown == {
        "segment.ms": "12",
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": "0.5",
        "unclean.leader.election.enable": "true",
        "max.message.bytes": "5",
    }


def test_equal_overrides_share_one_object() -> None:
    first = KAFKA_DEFAULTS.topic({"retention.ms": "5", "segment.ms": "6"})
    assert KAFKA_DEFAULTS.topic({"segment.ms": "6", "retention.ms": "5"}) is first
    assert KAFKA_DEFAULTS.topic({"retention.ms": "7"}) is not first


def test_the_internal_segment_size_is_the_one_to_roll_at_and_is_listed_only_where_set() -> None:
    overrides = {"internal.segment.bytes": "77", "segment.bytes": "2000000"}
    assert KAFKA_DEFAULTS.topic(overrides).segment_bytes == 77
    described = {setting.name: setting.text for setting in KAFKA_DEFAULTS.describe(overrides)}
    assert (described["internal.segment.bytes"], described["segment.bytes"]) == ("77", "2000000")
    assert "internal.segment.bytes" not in {setting.name for setting in KAFKA_DEFAULTS.describe({})}


@pytest.mark.parametrize(
    ("policy", "is_compacted", "is_deleted"),
    [("", False, False), ("delete", False, True), ("compact", True, False), ("compact,delete", True, True)],
)
def test_cleanup_policy_as_two_questions(policy: str, is_compacted: bool, is_deleted: bool) -> None:
    config = KAFKA_DEFAULTS.topic({"cleanup.policy": policy})
    assert (config.is_compacted, config.is_deleted) == (is_compacted, is_deleted)


@pytest.mark.parametrize(
    ("compression", "codec", "level"),
    [
        ("producer", None, None),
        ("uncompressed", 0, None),
        ("gzip", 1, -1),
        ("snappy", 2, None),
        ("lz4", 3, 9),
        ("zstd", 4, 3),
    ],
)
def test_the_codec_to_store_in(compression: str, codec: int | None, level: int | None) -> None:
    config = TopicConfig(compression_type=compression)
    assert (config.target_codec, config.target_level) == (codec, level)


def test_the_clock_that_stamps() -> None:
    assert not TopicConfig().is_log_append_time
    assert TopicConfig(message_timestamp_type="LogAppendTime").is_log_append_time


def test_compaction_may_end_a_segment_sooner() -> None:
    assert TopicConfig(max_compaction_lag_ms=10).max_segment_ms == 604_800_000
    assert TopicConfig(max_compaction_lag_ms=10, cleanup_policy=("compact",)).max_segment_ms == 10


def test_preallocation_takes_the_whole_segment() -> None:
    assert TopicConfig().preallocated_bytes == 0
    assert TopicConfig(preallocate=True, internal_segment_bytes=50).preallocated_bytes == 50


@given(st.integers(0, 1000), st.integers(1, 1000), st.integers(0, 1 << 32))
def test_jitter_is_below_both_its_limits(jitter_ms: int, segment_ms: int, seed: int) -> None:
    config = TopicConfig(segment_jitter_ms=jitter_ms, segment_ms=segment_ms)
    drawn_ms = config.draw_segment_jitter_ms(Random(seed))
    assert 0 <= drawn_ms < max(1, min(jitter_ms, segment_ms))


def test_a_topic_config_cannot_be_changed() -> None:
    config: Any = TopicConfig()
    with pytest.raises(AttributeError):
        config.retention_ms = 1


@given(st.sampled_from(sorted(TOPIC_SETTINGS)), st.text())
def test_any_text_is_a_config_or_the_one_error(name: str, text: str) -> None:
    complaint = answer_to({name: text})
    assert complaint is None or name in complaint or "Tiered Storage" in complaint
