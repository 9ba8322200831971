"""SyncGroup, Heartbeat and LeaveGroup: what a member may do, and when it is no member any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ottla.wire.schema import Request
from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import (
    commit,
    describe_groups,
    heartbeat,
    join,
    leave,
    leave_alone,
    sync,
)
from tests.conformance.members import Member, await_state, stable_group, without_a_group_of_no_name
from tests.conformance.script import Script

exchanges = Exchanges("group_members")


def joined(script: Script, group: str) -> Member:
    """A member that has no assignment yet."""
    answer = script.ask(join(group), 3, on="a")
    return Member("a", answer.member_id, answer.generation_id)


@exchanges.versions(range(6))
def an_assignment_for_itself(script: Script, version: int) -> None:
    group = script.group()
    member = joined(script, group)
    script.send(sync(group, member.generation, member.id, {member.id: b"all of it"}), version, on="a")


@exchanges.versions((0, 3, 5))
def an_assignment_again(script: Script, version: int) -> None:
    group = script.group()
    [member] = stable_group(script, group, "a")
    script.send(sync(group, member.generation, member.id), version, on="a")
    script.send(sync(group, member.generation, member.id, {member.id: b"something else"}), version, on="a")


@exchanges.one
def a_leader_that_leaves_itself_out(script: Script) -> None:
    group = script.group()
    member = joined(script, group)
    script.send(sync(group, member.generation, member.id, {"nobody": b"all of it"}), on="a")
    script.send(describe_groups(group))


@exchanges.one
def a_leader_without_assignments(script: Script) -> None:
    group = script.group()
    member = joined(script, group)
    script.send(sync(group, member.generation, member.id), on="a")
    script.send(heartbeat(group, member.generation, member.id))


@exchanges.one
def an_empty_assignment(script: Script) -> None:
    group = script.group()
    member = joined(script, group)
    script.send(sync(group, member.generation, member.id, {member.id: b""}), on="a")


Wrong: TypeAlias = Callable[[str, Member], Request]
"""Of a group and a member of it."""

WRONG_SYNCS: dict[str, Wrong] = {
    "a later generation": lambda group, member: sync(group, member.generation + 1, member.id),
    "an earlier generation": lambda group, member: sync(group, member.generation - 1, member.id),
    "generation -1": lambda group, member: sync(group, -1, member.id),
    "an unknown member": lambda group, member: sync(group, member.generation, "nobody"),
    "no member": lambda group, member: sync(group, member.generation, ""),
    "an unknown group": lambda group, member: sync(f"no-{group}", member.generation, member.id),
    "a group of no name": lambda group, member: sync("", member.generation, member.id),
    "another protocol": lambda group, member: sync(group, member.generation, member.id, protocol="sticky"),
    "another protocol type": lambda group, member: sync(group, member.generation, member.id, protocol_type="connect"),
    "no protocol": lambda group, member: sync(group, member.generation, member.id, protocol=None, protocol_type=None),
    "no protocol type only": lambda group, member: sync(group, member.generation, member.id, protocol_type=None),
    "an unknown instance": lambda group, member: sync(group, member.generation, member.id, instance="nobody"),
}


@exchanges.cases(WRONG_SYNCS)
def a_sync_with(script: Script, wrong: Wrong) -> None:
    group = script.group()
    script.send(wrong(group, joined(script, group)), 5)
    stable = script.group("stable")
    [member] = stable_group(script, stable, "b")
    script.send(wrong(stable, member), 5)


@exchanges.cases({name: wrong for name, wrong in WRONG_SYNCS.items() if "instance" not in name})
def an_old_sync_with(script: Script, wrong: Wrong) -> None:
    group = script.group()
    script.send(wrong(group, joined(script, group)), 0)


@exchanges.versions(range(5))
def a_heartbeat(script: Script, version: int) -> None:
    group = script.group()
    [member] = stable_group(script, group, "a")
    script.send(heartbeat(group, member.generation, member.id), version)


@exchanges.one
def a_heartbeat_before_the_assignment(script: Script) -> None:
    group = script.group()
    member = joined(script, group)
    script.send(heartbeat(group, member.generation, member.id))
    script.send(heartbeat(group, member.generation + 1, member.id))


WRONG_HEARTBEATS: dict[str, Wrong] = {
    "a later generation": lambda group, member: heartbeat(group, member.generation + 1, member.id),
    "an earlier generation": lambda group, member: heartbeat(group, member.generation - 1, member.id),
    "generation -1": lambda group, member: heartbeat(group, -1, member.id),
    "an unknown member": lambda group, member: heartbeat(group, member.generation, "nobody"),
    "no member": lambda group, member: heartbeat(group, member.generation, ""),
    "an unknown group": lambda group, member: heartbeat(f"no-{group}", member.generation, member.id),
    "a group of no name": lambda group, member: heartbeat("", member.generation, member.id),
    "an unknown instance": lambda group, member: heartbeat(group, member.generation, member.id, instance="nobody"),
}


@exchanges.cases(WRONG_HEARTBEATS)
def a_heartbeat_with(script: Script, wrong: Wrong) -> None:
    group = script.group()
    [member] = stable_group(script, group, "a")
    script.send(wrong(group, member), 4)


@exchanges.cases({name: wrong for name, wrong in WRONG_HEARTBEATS.items() if "instance" not in name})
def an_old_heartbeat_with(script: Script, wrong: Wrong) -> None:
    group = script.group()
    [member] = stable_group(script, group, "a")
    script.send(wrong(group, member), 0)


@exchanges.one
def a_group_of_no_name_that_has_offsets(script: Script) -> None:
    topic = script.topic()
    without_a_group_of_no_name(script)
    script.ask(commit("", topic))
    script.send(heartbeat("", -1, "nobody"))
    script.send(sync("", -1, "nobody"))
    script.send(leave("", ("nobody", None)))
    script.send(join(""))


@exchanges.versions((0, 1, 2))
def one_leaves(script: Script, version: int) -> None:
    group = script.group()
    [member] = stable_group(script, group, "a")
    script.send(leave_alone(group, "nobody"), version)
    script.send(leave_alone(group, member.id), version)
    script.send(leave_alone(group, member.id), version)
    script.send(heartbeat(group, member.generation, member.id))
    script.send(describe_groups(group))


@exchanges.versions((3, 4, 5))
def some_leave(script: Script, version: int) -> None:
    group = script.group()
    first, second, third = stable_group(script, group, "a", "b", "c")
    script.send(leave(group, (second.id, None), ("nobody", None), (third.id, None)), version)
    script.send(heartbeat(group, first.generation, first.id))
    script.send(describe_groups(group), 5)


@exchanges.one
def the_same_member_leaves_twice(script: Script) -> None:
    group = script.group()
    [member] = stable_group(script, group, "a")
    script.send(leave(group, (member.id, None), (member.id, None), reason="enough"))


@exchanges.one
def nobody_leaves(script: Script) -> None:
    group = script.group()
    stable_group(script, group, "a")
    script.send(leave(group))


WRONG_LEAVES: dict[str, Wrong] = {
    "an unknown group": lambda group, member: leave(f"no-{group}", (member.id, None)),
    "an unknown group and two members": lambda group, member: leave(f"no-{group}", (member.id, None), ("x", "y")),
    "a group of no name": lambda group, member: leave("", (member.id, None)),
    "an unknown instance": lambda group, member: leave(group, (member.id, "nobody")),
    "no member but an unknown instance": lambda group, member: leave(group, ("", "nobody")),
    "neither a member nor an instance": lambda group, member: leave(group, ("", None)),
}


@exchanges.cases(WRONG_LEAVES)
def a_leave_with(script: Script, wrong: Wrong) -> None:
    group = script.group()
    [member] = stable_group(script, group, "a")
    for version in (3, 5):
        script.send(wrong(group, member), version)


@exchanges.versions((0, 2))
def an_old_leave_of_an_unknown_group(script: Script, version: int) -> None:
    script.send(leave_alone(script.group(), "nobody"), version)
    script.send(leave_alone("", "nobody"), version)


@exchanges.versions((3, 5))
def an_id_that_was_given_leaves(script: Script, version: int) -> None:
    group = script.group()
    member_id = script.ask(join(group), 9, on="a").member_id
    script.send(leave(group, (member_id, None)), version)
    script.send(join(group, member_id), on="a")


@exchanges.one
def a_member_leaves_before_its_assignment(script: Script) -> None:
    group = script.group()
    member = joined(script, group)
    script.send(leave(group, (member.id, None)))
    script.send(sync(group, member.generation, member.id))
    script.send(describe_groups(group))


@exchanges.one
def everyone_has_left_and_another_joins(script: Script) -> None:
    group = script.group()
    [member] = stable_group(script, group, "a")
    script.ask(leave(group, (member.id, None)))
    script.send(join(group), 3, on="b")


@exchanges.one
def everyone_has_left_and_another_protocol_type_joins(script: Script) -> None:
    group = script.group()
    [member] = stable_group(script, group, "a")
    script.ask(leave(group, (member.id, None)))
    script.send(join(group, protocol_type="connect"), 3, on="b")
    script.send(describe_groups(group))


@exchanges.one
def a_session_ends(script: Script) -> None:
    group, topic = script.group(), script.topic()
    [member] = stable_group(script, group, "a", session_ms=6_000)
    await_state(script, group, "Empty")
    script.send(heartbeat(group, member.generation, member.id))
    script.send(sync(group, member.generation, member.id))
    script.send(commit(group, topic, generation=member.generation, member_id=member.id))
    script.send(join(group, member.id), on="a")
    script.send(describe_groups(group))
