"""ListGroups, DescribeGroups and DeleteGroups of classic groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import (
    commit,
    delete_groups,
    delete_offsets,
    describe_groups,
    enter,
    fetch_offsets,
    join,
    leave,
    list_groups,
)
from tests.conformance.members import stable_group, without_a_group_of_no_name
from tests.conformance.script import Script

exchanges = Exchanges("group_admin")


def several_groups(script: Script) -> None:
    """One of each kind."""
    topic = script.topic()
    stable_group(script, script.group("stable"), "a")
    script.ask(join(script.group("completing")), 3, on="b")
    [member] = stable_group(script, script.group("left"), "c")
    script.ask(leave(script.group("left"), (member.id, None)))
    script.ask(commit(script.group("committed"), topic))
    script.ask(join(script.group("given an id")), 9, on="d")
    stable_group(script, script.group("connect"), "e", protocol_type="connect")
    script.ask(enter(script.group("consumer"), script.name("member")))


@exchanges.versions(range(6))
def list_all(script: Script, version: int) -> None:
    several_groups(script)
    script.send(list_groups(), version, only_own=True)


STATES: dict[str, Sequence[str]] = {
    "Stable": ["Stable"],
    "in small letters": ["stable", "empty"],
    "two": ["Empty", "CompletingRebalance"],
    "PreparingRebalance": ["PreparingRebalance"],
    "Dead": ["Dead"],
    "of the new protocol": ["Assigning", "Reconciling"],
    "unknown": ["Sleeping"],
    "one known and one unknown": ["Sleeping", "Stable"],
    "empty": [""],
}


@exchanges.cases(STATES)
def list_by_states_that_are(script: Script, states: Sequence[str]) -> None:
    several_groups(script)
    script.send(list_groups(states=states), 4, only_own=True)
    script.send(list_groups(states=states), 5, only_own=True)


TYPES: dict[str, Sequence[str]] = {
    "classic": ["classic"],
    "consumer": ["consumer"],
    "both": ["classic", "consumer"],
    "in capitals": ["CONSUMER"],
    "share": ["share"],
    "unknown": ["other"],
    "one known and one unknown": ["other", "Classic"],
    "empty": [""],
}


@exchanges.cases(TYPES)
def list_by_types_that_are(script: Script, types: Sequence[str]) -> None:
    several_groups(script)
    script.send(list_groups(types=types), only_own=True)


@exchanges.cases({"Stable consumer": (["Stable"], ["consumer"]), "Empty classic": (["Empty"], ["classic"])})
def list_by_states_and_types(script: Script, filters: tuple[Sequence[str], Sequence[str]]) -> None:
    several_groups(script)
    states, types = filters
    script.send(list_groups(states=states, types=types), only_own=True)


@exchanges.versions(range(7))
def describe_a_stable_group(script: Script, version: int) -> None:
    group = script.group()
    stable_group(script, group, "a", "b", instances=[None, "instance"] if version >= 4 else [])
    script.send(describe_groups(group), version)


@exchanges.versions(range(7))
def describe_a_group_that_is_not_there(script: Script, version: int) -> None:
    script.send(describe_groups(script.group()), version)


@exchanges.versions((0, 3, 5, 6))
def describe_several_groups(script: Script, version: int) -> None:
    several_groups(script)
    labels = ("stable", "completing", "left", "committed", "given an id", "connect", "nobody")
    script.send(describe_groups(*map(script.group, labels)), version)


@exchanges.versions((0, 5, 6))
def describe_a_group_of_the_new_protocol(script: Script, version: int) -> None:
    group = script.group()
    script.ask(enter(group, script.name("member")))
    script.send(describe_groups(group), version)


@exchanges.versions((0, 5, 6))
def describe_a_group_of_no_name(script: Script, version: int) -> None:
    without_a_group_of_no_name(script)
    script.send(describe_groups(""), version)


@exchanges.versions((0, 6))
def describe_no_groups(script: Script, version: int) -> None:
    script.group()
    script.send(describe_groups(), version)


@exchanges.versions((3, 6))
def describe_with_operations(script: Script, version: int) -> None:
    group = script.group()
    stable_group(script, group, "a")
    script.send(describe_groups(group, script.group("nobody"), operations=True), version)


@exchanges.one
def describe_the_same_group_twice(script: Script) -> None:
    group = script.group()
    stable_group(script, group, "a")
    script.send(describe_groups(group, group))


@exchanges.versions(range(3))
def delete_an_empty_group(script: Script, version: int) -> None:
    group, topic = script.group(), script.topic()
    script.ask(commit(group, topic))
    script.send(delete_groups(group), version)
    script.send(describe_groups(group))
    script.send(fetch_offsets(group, {topic: [0]}))
    script.send(delete_groups(group), version)


@exchanges.versions(range(3))
def delete_groups_good_and_bad(script: Script, version: int) -> None:
    several_groups(script)
    without_a_group_of_no_name(script)
    labels = ("stable", "completing", "left", "committed", "given an id", "consumer", "nobody")
    script.send(delete_groups(*map(script.group, labels), ""), version)
    script.send(list_groups(), only_own=True)


@exchanges.one
def delete_no_groups(script: Script) -> None:
    script.group()
    script.send(delete_groups())


@exchanges.one
def delete_the_same_group_twice(script: Script) -> None:
    group, topic = script.group(), script.topic()
    script.ask(commit(group, topic))
    script.send(delete_groups(group, group))


@exchanges.one
def the_last_offset_of_a_group_is_deleted(script: Script) -> None:
    group, topic = script.group(), script.topic()
    script.ask(commit(group, topic))
    script.ask(delete_offsets(group, {topic.name: [0]}))
    script.send(list_groups(), only_own=True)
    script.send(delete_groups(group))


GROUP_NAMES: Mapping[str, str] = {"a slash": "a/b", "a blank": "a b", "letters beyond ASCII": "\u017elut\u00fd"}


@exchanges.cases(GROUP_NAMES)
def a_name_with(script: Script, name: str) -> None:
    group, topic = script.group(name), script.topic()
    script.send(commit(group, topic))
    script.send(describe_groups(group))
    script.send(delete_groups(group))
