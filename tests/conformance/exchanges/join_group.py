"""JoinGroup by members that are alone, and every way in which they are turned away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import commit, describe_groups, heartbeat, join, subscription, sync
from tests.conformance.members import stable_group
from tests.conformance.script import Script

exchanges = Exchanges("join_group")

VERSIONS_WITHOUT_AN_ID_FIRST = (0, 1, 2, 3)
VERSIONS_WITH_AN_ID_FIRST = (4, 5, 6, 7, 8, 9)


@exchanges.versions(VERSIONS_WITHOUT_AN_ID_FIRST)
def a_first_member(script: Script, version: int) -> None:
    script.send(join(script.group()), version, on="a")


@exchanges.versions(VERSIONS_WITH_AN_ID_FIRST)
def a_first_member_that_is_given_an_id(script: Script, version: int) -> None:
    group = script.group()
    given = script.send(join(group), version, on="a")
    script.send(join(group, given.member_id), version, on="a")


@exchanges.versions((5, 6, 7, 8, 9))
def a_first_static_member(script: Script, version: int) -> None:
    script.send(join(script.group(), instance="instance"), version, on="a")


@exchanges.cases({"null": None, "empty": "", "conformance": "conformance"})
def a_client_id(script: Script, client_id: str | None) -> None:
    script.send(join(script.group()), 4, on="a", client_id=client_id)


class Wrong(NamedTuple):
    options: Mapping[str, Any]
    member_id: str = ""


WRONG_JOINS = {
    "a session of 5999 ms": Wrong({"session_ms": 5_999}),
    "a session of 0 ms": Wrong({"session_ms": 0}),
    "a session of -1 ms": Wrong({"session_ms": -1}),
    "a session of 1800001 ms": Wrong({"session_ms": 1_800_001}),
    "an unknown member": Wrong({}, "nobody"),
    "no protocols": Wrong({"protocols": {}}),
    "an empty protocol type": Wrong({"protocol_type": ""}),
    "a protocol type of another kind": Wrong({"protocol_type": "connect"}),
    "no metadata": Wrong({"protocols": {"range": b""}}),
    "a rebalance timeout of 0 ms": Wrong({"rebalance_ms": 0}),
    "a rebalance timeout of -1 ms": Wrong({"rebalance_ms": -1}),
}


@exchanges.cases(WRONG_JOINS)
def into_a_new_group_with(script: Script, wrong: Wrong) -> None:
    for version in (2, 5, 9):
        script.send(join(script.group(f"group {version}"), wrong.member_id, **wrong.options), version, on="a")


@exchanges.cases({"6000 ms": 6_000, "1800000 ms": 1_800_000})
def a_session_just_within_the_limits(script: Script, session_ms: int) -> None:
    script.send(join(script.group(), session_ms=session_ms), 3, on="a")


@exchanges.versions((0, 3, 5, 9))
def a_group_of_no_name(script: Script, version: int) -> None:
    script.group()
    script.send(join(""), version, on="a")
    script.send(join("", "nobody"), version, on="a")


NO_PROTOCOL: dict[str, Mapping[str, Any]] = {
    "no protocols": {"protocols": {}},
    "an empty protocol type": {"protocol_type": ""},
}


@exchanges.cases(NO_PROTOCOL)
def with_an_id_first_and(script: Script, options: Mapping[str, Any]) -> None:
    script.send(join(script.group(), **options), 9, on="a")
    script.send(join(script.group("static"), instance="instance", **options), 9, on="b")


@exchanges.one
def an_id_that_was_given_is_not_a_member_yet(script: Script) -> None:
    group, topic = script.group(), script.topic()
    member_id = script.send(join(group), 9, on="a").member_id
    script.send(heartbeat(group, -1, member_id))
    script.send(sync(group, -1, member_id))
    script.send(commit(group, topic, generation=-1, member_id=member_id))
    script.send(describe_groups(group))


@exchanges.one
def two_ids_are_given_and_one_is_used(script: Script) -> None:
    group = script.group()
    script.send(join(group), 9, on="a")
    second = script.send(join(group), 9, on="b").member_id
    script.send(join(group, second), 9, on="b")
    script.send(describe_groups(group))


@exchanges.one
def an_id_that_was_given_by_another_group(script: Script) -> None:
    member_id = script.ask(join(script.group("other")), 9, on="a").member_id
    script.send(join(script.group(), member_id), 9, on="a")


@exchanges.one
def an_id_that_was_given_and_a_version_that_needs_none(script: Script) -> None:
    group = script.group()
    member_id = script.ask(join(group), 9, on="a").member_id
    script.send(join(group, member_id), 0, on="a")


@exchanges.one
def the_first_of_several_protocols(script: Script) -> None:
    protocols = {"sticky": subscription("a"), "range": subscription("b"), "roundrobin": subscription("c")}
    script.send(join(script.group(), protocols=protocols), 3, on="a")


@exchanges.versions((0, 3, 5, 9))
def again_before_its_assignment(script: Script, version: int) -> None:
    group = script.group()
    member_id = script.ask(join(group), 3, on="a").member_id
    script.send(join(group, member_id), version, on="a")
    script.send(join(group, member_id), version, on="a")


@exchanges.one
def again_with_other_metadata_before_its_assignment(script: Script) -> None:
    group = script.group()
    member_id = script.ask(join(group), 3, on="a").member_id
    script.send(join(group, member_id, protocols={"range": subscription("elsewhere")}), 9, on="a")


@exchanges.versions((0, 3, 5, 9))
def the_leader_again_in_a_stable_group(script: Script, version: int) -> None:
    group = script.group()
    [member] = stable_group(script, group, "a")
    script.send(join(group, member.id), version, on="a")


REFUSED_BESIDE: dict[str, Mapping[str, Any]] = {
    "another protocol type": {"protocol_type": "connect"},
    "an empty protocol type": {"protocol_type": ""},
    "no protocol in common": {"protocols": {"sticky": subscription("somewhere")}},
    "no protocols": {"protocols": {}},
    "a session too short": {"session_ms": 1},
}


@exchanges.cases(REFUSED_BESIDE)
def beside_a_member_with(script: Script, options: Mapping[str, Any]) -> None:
    group = script.group()
    [first] = stable_group(script, group, "a")
    script.send(join(group, **options), 3, on="b")
    script.send(join(group, **options), 9, on="b")
    script.send(join(group, "nobody", **options), 9, on="b")
    script.send(join(group, instance="instance", **options), 9, on="b")
    script.send(heartbeat(group, first.generation, first.id))


@exchanges.cases(REFUSED_BESIDE)
def a_member_again_with(script: Script, options: Mapping[str, Any]) -> None:
    group = script.group()
    [first] = stable_group(script, group, "a")
    script.send(join(group, first.id, **options), 9, on="a")


@exchanges.one
def an_unknown_member_beside_another(script: Script) -> None:
    group = script.group()
    stable_group(script, group, "a")
    for version in (0, 4, 9):
        script.send(join(group, "nobody"), version, on="b")


@exchanges.one
def into_a_group_of_another_type_that_is_empty(script: Script) -> None:
    group, topic = script.group(), script.topic()
    script.ask(commit(group, topic))
    script.send(join(group, protocol_type="connect"), 3, on="a")


@exchanges.one
def with_a_reason(script: Script) -> None:
    group = script.group()
    member_id = script.send(join(group, reason="need to join"), 8, on="a").member_id
    script.send(join(group, member_id, reason="x" * 300), 9, on="a")
