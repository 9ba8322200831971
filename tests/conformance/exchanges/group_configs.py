"""Settings of groups."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.messages.describe_configs import DescribeConfigsResponse
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.conformance.consumers import joined, known_topic
from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import beat, commit, delete_groups
from tests.conformance.requests import (
    APPEND,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    alter_configs,
    change_configs,
    describe_configs,
)
from tests.conformance.script import Script

exchanges = Exchanges("group_configs")

HEARTBEATS = "consumer.heartbeat.interval.ms"
SESSIONS = "consumer.session.timeout.ms"
ASSIGNMENTS = "consumer.assignment.interval.ms"
OF_CONSUMERS = [HEARTBEATS, SESSIONS, ASSIGNMENTS]


def show(script: Script, group: str, key: str, value: str, *, synonyms: bool = True) -> None:
    """The settings of consumers, once one of them has a value."""

    def is_so(answer: DescribeConfigsResponse) -> bool:
        [result] = answer.results
        return any(config.name == key and config.value == value for config in result.configs)

    script.settle(describe_configs(GROUP, group, OF_CONSUMERS, synonyms=synonyms), until=is_so)


@exchanges.versions((1, 2, 3, 4))
def describe(script: Script, version: int) -> None:
    script.send(describe_configs(GROUP, script.name("group"), OF_CONSUMERS, synonyms=True), version)


@exchanges.one
def describe_a_key_that_is_none(script: Script) -> None:
    script.send(describe_configs(GROUP, script.name("group"), ["retention.ms", HEARTBEATS]))


@exchanges.versions((0, 1))
def set_and_remove(script: Script, version: int) -> None:
    group = script.name("group")
    script.send(change_configs(GROUP, group, [(HEARTBEATS, SET, "7000")]), version)
    show(script, group, HEARTBEATS, "7000")
    script.send(change_configs(GROUP, group, [(SESSIONS, SET, "50000"), (HEARTBEATS, DELETE, None)]), version)
    show(script, group, HEARTBEATS, "5000")


@exchanges.versions((0, 1, 2))
def replace(script: Script, version: int) -> None:
    group = script.name("group")
    script.send(alter_configs(GROUP, group, [(HEARTBEATS, "7000")]), version)
    show(script, group, HEARTBEATS, "7000")
    script.send(alter_configs(GROUP, group, [(SESSIONS, "50000")]), version)
    show(script, group, HEARTBEATS, "5000")


@exchanges.one
def validate_only(script: Script) -> None:
    group = script.name("group")
    script.send(change_configs(GROUP, group, [(HEARTBEATS, SET, "7000")], validate_only=True))
    script.send(alter_configs(GROUP, group, [(HEARTBEATS, "7000")], validate_only=True))
    script.send(describe_configs(GROUP, group, [HEARTBEATS]))


BAD: dict[str, Sequence[tuple[str, int, str | None]]] = {
    "an unknown key": [("consumer.nothing", SET, "1")],
    "a key of topics": [("retention.ms", SET, "1")],
    "a word": [(HEARTBEATS, SET, "soon")],
    "nothing": [(HEARTBEATS, SET, "")],
    "null": [(HEARTBEATS, SET, None)],
    "a heartbeat below the least": [(HEARTBEATS, SET, "4999")],
    "a heartbeat above the highest": [(HEARTBEATS, SET, "15001")],
    "a session below the least": [(SESSIONS, SET, "44999")],
    "a session above the highest": [(SESSIONS, SET, "60001")],
    "an interval below the least": [(ASSIGNMENTS, SET, "-1")],
    "an interval above the highest": [(ASSIGNMENTS, SET, "15001")],
    "a negative heartbeat": [(HEARTBEATS, SET, "-1")],
    "the same key twice": [(HEARTBEATS, SET, "6000"), (HEARTBEATS, SET, "7000")],
    "an append": [(HEARTBEATS, APPEND, "6000")],
    "a subtraction": [(HEARTBEATS, SUBTRACT, "6000")],
    "an unknown operation": [(HEARTBEATS, 9, "6000")],
    "one good and one bad": [(HEARTBEATS, SET, "6000"), (SESSIONS, SET, "1")],
}


@exchanges.cases(BAD)
def a_change_that_is_refused(script: Script, changes: Sequence[tuple[str, int, str | None]]) -> None:
    group = script.name("group")
    script.send(change_configs(GROUP, group, changes))
    script.send(describe_configs(GROUP, group, [HEARTBEATS]))


@exchanges.one
def removing_what_is_not_there(script: Script) -> None:
    script.send(change_configs(GROUP, script.name("group"), [(HEARTBEATS, DELETE, None)]))


@exchanges.cases({"groups": [GROUP], "all": [], "topics": [TOPIC], "topics and groups": [TOPIC, GROUP]})
def groups_with_settings_are_listed(script: Script, kinds: list[int]) -> None:
    script.topic()
    group = script.name("group")
    script.ask(change_configs(GROUP, group, [(HEARTBEATS, SET, "7000")]))
    show(script, group, HEARTBEATS, "7000")
    script.send(ListConfigResourcesRequest(resource_types=kinds), only_own=True)


@exchanges.one
def a_group_whose_settings_are_removed_is_not_listed(script: Script) -> None:
    group = script.name("group")
    listed = ListConfigResourcesRequest(resource_types=[GROUP])
    script.send(listed, only_own=True)
    script.ask(change_configs(GROUP, group, [(HEARTBEATS, SET, "7000")]))
    show(script, group, HEARTBEATS, "7000")
    script.ask(change_configs(GROUP, group, [(HEARTBEATS, DELETE, None)]))
    show(script, group, HEARTBEATS, "5000")
    script.send(listed, only_own=True)


@exchanges.one
def a_group_that_is_deleted_keeps_its_settings(script: Script) -> None:
    group, topic = script.group(), script.topic()
    script.ask(change_configs(GROUP, group, [(HEARTBEATS, SET, "7000")]))
    show(script, group, HEARTBEATS, "7000")
    script.ask(commit(group, topic))
    script.send(delete_groups(group))
    script.send(describe_configs(GROUP, group, [HEARTBEATS]))


@exchanges.one
def a_heartbeat_tells_of_the_interval(script: Script) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    script.send(change_configs(GROUP, group, [(HEARTBEATS, SET, "9000")]))
    script.settle(beat(group, member.id, member.epoch), until=lambda answer: answer.heartbeat_interval_ms == 9000)
