"""Configurations of groups: what they may be, that they last, and that consumer groups go by them."""

from __future__ import annotations

import pytest

from ottla.broker.config.groups import GroupConfigs
from ottla.broker.config.layers import BrokerSettings
from ottla.config import ConfigError, Source
from ottla.controller.changes import ChangedGroupConfig
from ottla.controller.cluster import Cluster

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def replace(cluster: Cluster, group_id: str, texts: dict[str, str]) -> None:
    cluster.replay(ChangedGroupConfig(group_id, texts, group_id in cluster.group_configs))


def test_a_group_goes_by_its_own_settings_and_others_by_the_brokers(cluster: Cluster) -> None:
    configs = GroupConfigs(lambda: cluster, BrokerSettings({"group.consumer.heartbeat.interval.ms": "7000"}))
    replace(cluster, "own/group", {SESSION: "50000"})
    own, other = configs.consumer_settings("own/group"), configs.consumer_settings("other")
    assert (own.session_timeout_ms, own.heartbeat_interval_ms) == (50_000, 7000)
    assert (other.session_timeout_ms, other.heartbeat_interval_ms) == (45_000, 7000)


def test_a_setting_of_the_broker_alone_holds_for_every_group(cluster: Cluster) -> None:
    configs = GroupConfigs(lambda: cluster, BrokerSettings({"group.consumer.regex.refresh.interval.ms": "20000"}))
    assert configs.consumer_settings("g").regex_refresh_interval_ms == 20_000
    assert GroupConfigs(lambda: cluster, BrokerSettings()).consumer_settings("g").regex_refresh_interval_ms == 600_000


def test_they_last_until_they_are_taken_away(cluster: Cluster) -> None:
    settings = BrokerSettings()
    replace(cluster, "a b/ö", {SESSION: "50000"})
    configs = GroupConfigs(lambda: cluster, settings)
    assert configs.consumer_settings("a b/ö").session_timeout_ms == 50_000
    replace(cluster, "a b/ö", {SESSION: "55000"})
    assert configs.consumer_settings("a b/ö").session_timeout_ms == 55_000
    replace(cluster, "a b/ö", {})
    assert configs.consumer_settings("a b/ö").session_timeout_ms == 45_000


def test_settings_of_the_broker_that_change_are_seen(cluster: Cluster) -> None:
    settings = BrokerSettings()
    configs = GroupConfigs(lambda: cluster, settings)
    assert configs.consumer_settings("g").assignment_interval_ms == 1000
    settings.set_dynamic({"group.consumer.assignment.interval.ms": "3"}, {})
    assert configs.consumer_settings("g").assignment_interval_ms == 3


def test_limits_that_were_narrowed_hold_for_what_was_set_before(cluster: Cluster) -> None:
    replace(cluster, "g", {SESSION: "60000"})
    narrowed = BrokerSettings({"group.consumer.max.session.timeout.ms": "55000"})
    assert GroupConfigs(lambda: cluster, narrowed).consumer_settings("g").session_timeout_ms == 55_000


def test_a_description_tells_where_a_value_is_from(cluster: Cluster) -> None:
    configs = GroupConfigs(lambda: cluster, BrokerSettings({"group.consumer.heartbeat.interval.ms": "7000"}))
    replace(cluster, "g", {SESSION: "50000"})
    described = {entry.name: (entry.text, entry.source) for entry in configs.describe("g")}
    assert described == {
        ASSIGNMENT: ("1000", Source.DEFAULT),
        HEARTBEAT: ("7000", Source.STATIC_BROKER),
        SESSION: ("50000", Source.GROUP),
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"retention.ms": "1"}, "Unknown group config name: retention.ms"),
        ({SESSION: "1"}, f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        ({SESSION: "60001"}, f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms"),
        (
            {ASSIGNMENT: "15001"},
            f"{ASSIGNMENT} must be less than or equal to group.consumer.max.assignment.interval.ms",
        ),
        ({SESSION: "x"}, f"Invalid value x for configuration {SESSION}: Not a number of type INT"),
        ({HEARTBEAT: "0"}, f"Invalid value 0 for configuration {HEARTBEAT}: Value must be at least 1"),
    ],
)
def test_what_cannot_be_is_refused_in_kafkas_words(cluster: Cluster, texts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GroupConfigs(lambda: cluster, BrokerSettings()).check(texts)
    assert str(caught.value) == message


def test_a_session_outlasts_the_time_between_heartbeats(cluster: Cluster) -> None:
    settings = BrokerSettings({"group.consumer.max.heartbeat.interval.ms": "50000"})
    with pytest.raises(ConfigError, match=f"{SESSION} must be greater than {HEARTBEAT}"):
        GroupConfigs(lambda: cluster, settings).check({HEARTBEAT: "45000"})
