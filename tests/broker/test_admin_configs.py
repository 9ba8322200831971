"""Describing and altering configurations, in the codes and words of Apache Kafka 4.3.1."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.handlers import alter_configs, describe_configs, incremental_alter_configs
from ottla.wire.messages import alter_configs as whole
from ottla.wire.messages import incremental_alter_configs as single
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from tests.broker.opened_broker import OpenBroker, topic

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]
Outcome = tuple[int, str | None]
DONE: Outcome = (0, None)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenBroker]:
    opened = OpenBroker(tmp_path)
    opened.create(topic("t"))
    yield opened
    opened.stop()


def alter(opened: OpenBroker, kind: int, name: str, *changes: Change, validate_only: bool = False) -> Outcome:
    resource = single.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            single.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = single.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    [answer] = opened.ask(incremental_alter_configs, request).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return answer.error_code, answer.error_message


def replace(opened: OpenBroker, kind: int, name: str, **configs: str | None) -> Outcome:
    resource = whole.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[whole.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    request = whole.AlterConfigsRequest(resources=[resource], validate_only=False)
    [answer] = opened.ask(alter_configs, request).responses
    return answer.error_code, answer.error_message


def describe(opened: OpenBroker, kind: int, name: str, *keys: str, version: int = 4) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    [result] = opened.ask(describe_configs, request, version).results
    assert isinstance(result, DescribeConfigsResult)
    return result


def shown(
    opened: OpenBroker, kind: int, name: str, key: str
) -> tuple[str | None, int, list[tuple[str, str | None, int]]]:
    [entry] = describe(opened, kind, name, key).configs
    return entry.value, entry.config_source, [(one.name, one.value, one.source) for one in entry.synonyms]


# Describing


def test_a_topic_is_described_with_all_or_some_of_its_configurations(opened: OpenBroker) -> None:
    everything = describe(opened, TOPIC, "t")
    assert (everything.error_code, everything.error_message, len(everything.configs)) == (0, "", 33)
    assert [entry.name for entry in describe(opened, TOPIC, "t", "retention.ms", "foo").configs] == ["retention.ms"]


def test_documentation_and_synonyms_only_for_who_asks(opened: OpenBroker) -> None:
    def entry(synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
        resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=["segment.bytes"])
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=synonyms, include_documentation=documentation
        )
        [found] = opened.ask(describe_configs, request).results[0].configs
        assert isinstance(found, DescribeConfigsResourceResult)
        return found

    bare, full = entry(False, False), entry(True, True)
    assert (bare.synonyms, bare.documentation) == ([], None)
    assert [synonym.name for synonym in full.synonyms] == ["log.segment.bytes"]
    assert full.documentation
    assert (bare.config_type, bare.read_only) == (3, False)


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "nope", 3, ""),
        (TOPIC, "", 17, "Topic name is invalid: the empty string is not allowed"),
        (BROKER, "9", 42, "Unexpected broker id, expected 1 or empty string, but received 9"),
        (BROKER, "-1", 42, "Unexpected broker id, expected 1 or empty string, but received -1"),
        (BROKER, "x", 42, "Broker id must be an integer, but it is: x"),
        (BROKER, "1 ", 42, "Broker id must be an integer, but it is: 1 "),
        (99, "a", 42, describe_configs.MALFORMED),
        (0, "a", 42, describe_configs.MALFORMED),
    ],
)
def test_what_cannot_be_described(opened: OpenBroker, kind: int, name: str, code: int, message: str) -> None:
    result = describe(opened, kind, name)
    assert (result.error_code, result.error_message, result.configs) == (code, message, [])
    assert (result.resource_type, result.resource_name) == (kind, name)


@pytest.mark.parametrize("version", range(1, 5))
def test_a_broker_is_described(opened: OpenBroker, version: int) -> None:
    entries = {entry.name: entry for entry in describe(opened, BROKER, "1", version=version).configs}
    assert entries["num.partitions"].value == "1"
    assert entries["num.partitions"].read_only
    assert not entries["log.segment.bytes"].read_only


def test_all_brokers_together_are_described_by_what_was_set(opened: OpenBroker) -> None:
    [entry] = describe(opened, BROKER, "").configs
    assert (entry.name, entry.value, entry.config_source, entry.read_only) == ("min.insync.replicas", "1", 3, False)
    assert [(one.value, one.source) for one in entry.synonyms] == [("1", 3)]


# Topics


@pytest.mark.parametrize(
    ("name", "changes", "outcome"),
    [
        ("t", [("foo", SET, "1")], (40, "Unknown topic config name: foo")),
        ("t", [("foo", DELETE, None)], DONE),
        ("t", [], DONE),
        (
            "t",
            [("retention.ms", SET, "abc")],
            (40, "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ),
        ("t", [("retention.ms", SET, None)], (42, "Null value not supported for : retention.ms")),
        ("t", [("cleanup.policy", APPEND, None)], (42, "Null value not supported for : cleanup.policy")),
        ("t", [("retention.ms", APPEND, "1")], (40, "Can't APPEND to key retention.ms because its type is not LIST.")),
        ("t", [("foo", SUBTRACT, "1")], (40, "Can't SUBTRACT to key foo because its type is not LIST.")),
        ("t", [("retention.ms", SET, "1")] * 2, (42, "Error due to duplicate config keys")),
        ("t", [("retention.ms", 9, "1")], (-1, None)),
        (
            "t",
            [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")],
            (40, "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"),
        ),
        ("t", [("foo", SET, "1"), ("retention.ms", SET, "77")], (40, "Unknown topic config name: foo")),
        ("nope", [("retention.ms", SET, "1")], (3, "The topic 'nope' does not exist.")),
        ("", [("retention.ms", SET, "1")], (42, "Default topic resources are not allowed.")),
    ],
)
def test_changes_of_a_topic_that_change_nothing(
    opened: OpenBroker, name: str, changes: list[Change], outcome: Outcome
) -> None:
    assert alter(opened, TOPIC, name, *changes) == outcome
    assert opened.broker.topics.by_name["t"].overrides == {}


def test_a_change_acts_on_the_log_and_stays(opened: OpenBroker) -> None:
    assert alter(opened, TOPIC, "t", ("retention.ms", SET, "5000"), validate_only=True) == DONE
    assert shown(opened, TOPIC, "t", "retention.ms")[:2] == ("604800000", 5)
    assert alter(opened, TOPIC, "t", ("retention.ms", SET, "5000")) == DONE
    opened.create(topic("other"))
    for _ in range(2):
        assert shown(opened, TOPIC, "t", "retention.ms")[:2] == ("5000", 1)
        assert opened.broker.topics.by_name["t"].partitions[0].log.config.retention_ms == 5000
        assert opened.broker.topics.by_name["other"].partitions[0].log.config.retention_ms == 604_800_000
        opened.stop()
        opened.start()
    assert alter(opened, TOPIC, "t", ("retention.ms", DELETE, None)) == DONE
    assert opened.broker.topics.by_name["t"].partitions[0].log.config.retention_ms == 604_800_000


def test_lists_grow_and_shrink(opened: OpenBroker) -> None:
    steps: list[tuple[int, str, str]] = [
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact,delete", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "wild", "compact"),
        (SUBTRACT, "compact", ""),
        (SET, "delete", "delete"),
    ]
    for operation, value, expected in steps:
        assert alter(opened, TOPIC, "t", ("cleanup.policy", operation, value)) == DONE
        assert shown(opened, TOPIC, "t", "cleanup.policy")[0] == expected
    assert alter(opened, TOPIC, "t", ("cleanup.policy", APPEND, "wild")) == (
        40,
        "Invalid value wild for configuration cleanup.policy: String must be one of: compact, delete",
    )


def test_altering_the_whole_drops_what_it_does_not_name(opened: OpenBroker) -> None:
    assert replace(opened, TOPIC, "t", retention_ms="9", segment_ms="9") == DONE
    assert replace(opened, TOPIC, "t", segment_ms="8") == DONE
    assert opened.broker.topics.by_name["t"].overrides == {"segment.ms": "8"}
    assert replace(opened, TOPIC, "t", segment_ms=None) == (42, "Null value not supported for : segment.ms")
    assert replace(opened, TOPIC, "t") == DONE
    assert opened.broker.topics.by_name["t"].overrides == {}


def test_a_resource_that_comes_twice_is_refused_both_times(opened: OpenBroker) -> None:
    resource = single.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[single.AlterableConfig(name="retention.ms", config_operation=SET, value="1")],
    )
    request = single.IncrementalAlterConfigsRequest(resources=[resource, resource], validate_only=False)
    answers = opened.ask(incremental_alter_configs, request).responses
    assert [(one.error_code, one.error_message) for one in answers] == [
        (42, "Each resource must appear at most once.")
    ] * 2


@pytest.mark.parametrize("kind", [0, 99])
def test_an_unknown_kind_of_resource_is_refused(opened: OpenBroker, kind: int) -> None:
    assert alter(opened, kind, "x", ("a", SET, "1")) == (42, f"Unknown resource type {kind}")


# Brokers


@pytest.mark.parametrize(
    ("name", "change", "outcome"),
    [
        ("1", ("node.id", SET, "2"), (42, "Cannot update these configs dynamically: [node.id]")),
        ("", ("log.retention.hours", SET, "2"), (42, "Cannot update these configs dynamically: [log.retention.hours]")),
        (
            "1",
            ("log.retention.ms", SET, "abc"),
            (42, "Invalid value abc for configuration log.retention.ms: Not a number of type LONG"),
        ),
        (
            "",
            ("log.segment.bytes", SET, "5"),
            (42, "Invalid value 5 for configuration log.segment.bytes: Value must be at least 1048576"),
        ),
        ("9", ("log.retention.ms", SET, "1"), (42, "Unexpected broker id, expected 1, but received 9")),
        ("x", ("log.retention.ms", SET, "1"), (42, "Node id must be an integer, but it is: x")),
        (
            "",
            ("listeners", SET, "PLAINTEXT://:1"),
            (42, "Cannot update these configs at default cluster level, broker id must be specified: [listeners]"),
        ),
        *[
            ("1", ("listeners", SET, text), (42, "Cannot update these configs dynamically: [listeners]"))
            for text in ("garbage", "PLAINTEXT://:1")
        ],
        (
            "1",
            ("max.connections", SET, "0"),
            (42, "max.connections must be at least 1, or nobody could ever change it again."),
        ),
        (
            "1",
            ("min.insync.replicas", SET, "1"),
            (40, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
        ),
        (
            "",
            ("min.insync.replicas", DELETE, None),
            (40, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."),
        ),
        ("1", ("log.retention.ms", SET, None), (42, "Null value not supported for : log.retention.ms")),
        ("1", ("foo", DELETE, None), DONE),
    ],
)
def test_changes_of_a_broker_that_change_nothing(
    opened: OpenBroker, name: str, change: Change, outcome: Outcome
) -> None:
    assert alter(opened, BROKER, name, change) == outcome
    assert opened.broker.settings.of_broker == {}
    assert opened.broker.settings.of_cluster == {"min.insync.replicas": "1"}


def test_the_brokers_own_setting_is_stronger_than_the_clusters_and_topics_follow(opened: OpenBroker) -> None:
    log = opened.broker.topics.by_name["t"].partitions[0].log
    assert alter(opened, BROKER, "", ("log.retention.ms", SET, "2000")) == DONE
    assert log.config.retention_ms == 2000
    assert alter(opened, BROKER, "1", ("log.retention.ms", SET, "1000")) == DONE
    assert log.config.retention_ms == 1000
    opened.stop()
    opened.start()
    synonyms = [("log.retention.ms", "1000", 2), ("log.retention.ms", "2000", 3), ("log.retention.hours", "168", 5)]
    assert shown(opened, TOPIC, "t", "retention.ms") == ("1000", 2, synonyms)
    assert shown(opened, BROKER, "1", "log.retention.ms") == ("1000", 2, synonyms)
    assert replace(opened, BROKER, "1") == DONE
    assert opened.broker.topics.by_name["t"].partitions[0].log.config.retention_ms == 2000


def test_the_clusters_settings_are_replaced_but_for_what_must_stay(opened: OpenBroker) -> None:
    assert replace(opened, BROKER, "")[0] == 40
    assert replace(opened, BROKER, "", min_insync_replicas="1", log_retention_ms="7") == DONE
    assert opened.broker.settings.of_cluster == {"min.insync.replicas": "1", "log.retention.ms": "7"}


def test_a_setting_that_nobody_knows_is_kept_and_shown_as_a_secret(opened: OpenBroker) -> None:
    assert alter(opened, BROKER, "", ("bar", SET, "1")) == DONE
    for name in ("1", ""):
        entry = next(entry for entry in describe(opened, BROKER, name).configs if entry.name == "bar")
        assert (entry.value, entry.is_sensitive, entry.read_only, entry.config_type) == (None, True, True, 0)
        assert [(one.name, one.value, one.source) for one in entry.synonyms] == [("bar", None, 3)]


def test_a_topic_keeps_what_contradicts_a_later_setting_of_the_broker(opened: OpenBroker) -> None:
    assert alter(opened, TOPIC, "t", ("max.compaction.lag.ms", SET, "1000")) == DONE
    assert alter(opened, BROKER, "", ("log.cleaner.min.compaction.lag.ms", SET, "5000")) == DONE
    complaint = "conflict topic config setting min.compaction.lag.ms (5000) > max.compaction.lag.ms (1001)"
    assert alter(opened, TOPIC, "t", ("max.compaction.lag.ms", SET, "1001")) == (40, complaint)
    opened.create(topic("other"))
    opened.stop()
    opened.start()
    assert set(opened.broker.topics.by_name) == {"t", "other"}
    log = opened.broker.topics.by_name["t"].partitions[0].log
    assert (log.config.min_compaction_lag_ms, log.config.max_compaction_lag_ms) == (5000, 1000)


def test_nobody_is_locked_out_for_all_addresses(opened: OpenBroker) -> None:
    complaint = "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
    assert alter(opened, BROKER, "", ("max.connections.per.ip", SET, "0")) == (42, complaint)
