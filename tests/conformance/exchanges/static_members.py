"""Static members: who comes back under the name of an instance, and who is fenced by it."""

from __future__ import annotations

from typing import Any

from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import commit, describe_groups, heartbeat, join, leave, subscription, sync
from tests.conformance.members import await_state, stable_group
from tests.conformance.script import Script

exchanges = Exchanges("static_members")

VERSIONS = (5, 7, 8, 9)


@exchanges.versions(VERSIONS)
def the_leader_comes_back(script: Script, version: int) -> None:
    group = script.group()
    [old] = stable_group(script, group, "old", instances=["instance"])
    new = script.send(join(group, instance="instance"), version, on="new")
    script.send(sync(group, new.generation_id, new.member_id, instance="instance"), on="new")
    script.send(heartbeat(group, old.generation, old.id, instance="instance"))
    script.send(describe_groups(group))


@exchanges.versions(VERSIONS)
def a_follower_comes_back(script: Script, version: int) -> None:
    group = script.group()
    leader, old = stable_group(script, group, "leader", "old", instances=["first", "second"])
    new = script.send(join(group, instance="second"), version, on="new")
    script.send(sync(group, new.generation_id, new.member_id, instance="second"), on="new")
    script.send(heartbeat(group, leader.generation, leader.id, instance="first"))
    script.send(heartbeat(group, old.generation, old.id, instance="second"))


@exchanges.versions((5, 9))
def a_follower_comes_back_with_another_subscription(script: Script, version: int) -> None:
    group = script.group()
    leader, _ = stable_group(script, group, "leader", "old", instances=["first", "second"])
    script.send(join(group, instance="second", protocols={"range": subscription("elsewhere")}), version, on="new")
    script.send(heartbeat(group, leader.generation, leader.id, instance="first"))
    script.send(describe_groups(group))


@exchanges.one
def the_leader_comes_back_with_another_subscription(script: Script) -> None:
    group = script.group()
    stable_group(script, group, "old", instances=["instance"])
    script.send(join(group, instance="instance", protocols={"range": subscription("elsewhere")}), on="new")
    script.send(describe_groups(group))


@exchanges.one
def a_member_comes_back_and_another_protocol_is_chosen(script: Script) -> None:
    group = script.group()
    protocols = {"range": subscription("a"), "sticky": subscription("b")}
    stable_group(script, group, "old", instances=["instance"], protocols=protocols)
    script.send(join(group, instance="instance", protocols={"sticky": subscription("b")}), on="new")
    script.send(describe_groups(group))


@exchanges.one
def a_member_comes_back_with_a_protocol_nobody_else_has(script: Script) -> None:
    group = script.group()
    stable_group(script, group, "leader", "old", instances=["first", "second"])
    script.send(join(group, instance="second", protocols={"sticky": subscription("b")}), on="new")


@exchanges.one
def the_old_one_is_fenced(script: Script) -> None:
    group, topic = script.group(), script.topic()
    [old] = stable_group(script, group, "old", instances=["instance"])
    new = script.ask(join(group, instance="instance"), on="new").member_id
    identity: dict[str, Any] = {"generation": old.generation, "member_id": old.id, "instance": "instance"}
    for version in (3, 4):
        script.send(heartbeat(group, old.generation, old.id, instance="instance"), version)
    for version in (3, 5):
        script.send(sync(group, old.generation, old.id, instance="instance"), version)
    for version in (7, 10):
        script.send(commit(group, topic, **identity), version)
    for version in (5, 9):
        script.send(join(group, old.id, instance="instance"), version, on="old")
    for version in (3, 5):
        script.send(leave(group, (old.id, "instance")), version)
    script.send(heartbeat(group, old.generation, new, instance="instance"))


@exchanges.one
def the_old_one_without_its_instance_is_unknown(script: Script) -> None:
    group, topic = script.group(), script.topic()
    [old] = stable_group(script, group, "old", instances=["instance"])
    script.ask(join(group, instance="instance"), on="new")
    script.send(heartbeat(group, old.generation, old.id))
    script.send(sync(group, old.generation, old.id))
    script.send(commit(group, topic, generation=old.generation, member_id=old.id))
    script.send(join(group, old.id), on="old")
    script.send(leave(group, (old.id, None)))


@exchanges.one
def an_instance_that_is_unknown(script: Script) -> None:
    group, topic = script.group(), script.topic()
    [member] = stable_group(script, group, "a", instances=["instance"])
    script.send(heartbeat(group, member.generation, member.id, instance="nobody"))
    script.send(sync(group, member.generation, member.id, instance="nobody"))
    script.send(commit(group, topic, generation=member.generation, member_id=member.id, instance="nobody"))
    script.send(join(group, member.id, instance="nobody"), on="a")
    script.send(leave(group, (member.id, "nobody")))


@exchanges.one
def a_known_member_without_its_instance(script: Script) -> None:
    group, topic = script.group(), script.topic()
    [member] = stable_group(script, group, "a", instances=["instance"])
    script.send(heartbeat(group, member.generation, member.id))
    script.send(commit(group, topic, generation=member.generation, member_id=member.id))
    script.send(sync(group, member.generation, member.id))
    script.send(join(group, member.id), on="a")
    script.send(leave(group, (member.id, None)))


@exchanges.one
def a_member_joins_again_with_its_id(script: Script) -> None:
    group = script.group()
    first, second = stable_group(script, group, "a", "b", instances=["first", "second"])
    script.send(join(group, second.id, instance="second"), on="b")
    script.send(heartbeat(group, first.generation, first.id, instance="first"))
    pending = script.begin(join(group, first.id, instance="first"), on="a")
    await_state(script, group, "PreparingRebalance")
    script.send(join(group, second.id, instance="second"), on="b")
    script.finish(pending)


@exchanges.cases({"empty": "", "with a blank": "a b", "very long": "x" * 300})
def an_instance_that_is(script: Script, instance: str) -> None:
    script.send(join(script.group(), instance=instance), on="a")


@exchanges.versions((3, 4, 5))
def leaving_by_instance(script: Script, version: int) -> None:
    group = script.group()
    stable_group(script, group, "a", "b", instances=["first", "second"])
    script.send(leave(group, ("", "second"), ("", "third"), ("", "second")), version)
    script.send(describe_groups(group), 5)


@exchanges.one
def leaving_with_the_id_and_the_instance(script: Script) -> None:
    group = script.group()
    first, second = stable_group(script, group, "a", "b", instances=["first", "second"])
    script.send(leave(group, (first.id, "second"), (second.id, "second")))


@exchanges.one
def a_member_comes_back_before_the_assignment(script: Script) -> None:
    group = script.group()
    old = script.ask(join(group, instance="instance"), on="old")
    new = script.send(join(group, instance="instance"), on="new")
    script.send(sync(group, old.generation_id, old.member_id, instance="instance"), on="old")
    script.send(sync(group, new.generation_id, new.member_id, {new.member_id: b"all"}, instance="instance"), on="new")


@exchanges.one
def a_waiting_sync_of_a_member_that_is_replaced(script: Script) -> None:
    group = script.group()
    leader, old = stable_group(script, group, "leader", "old", instances=["first", "second"])
    rejoining = script.begin(join(group, leader.id, instance="first"), on="leader")
    await_state(script, group, "PreparingRebalance")
    again = script.send(join(group, old.id, instance="second"), on="old")
    script.finish(rejoining)
    waiting = script.begin(sync(group, again.generation_id, old.id, instance="second"), on="old")
    script.still_waits(waiting)
    replacing = script.begin(join(group, instance="second"), on="new")
    script.finish(waiting)
    await_state(script, group, "PreparingRebalance")
    script.send(heartbeat(group, again.generation_id, leader.id, instance="first"))
    rejoining = script.begin(join(group, leader.id, instance="first"), on="leader")
    script.finish(replacing)
    script.finish(rejoining)


@exchanges.one
def a_waiting_join_of_a_member_that_is_replaced(script: Script) -> None:
    group = script.group()
    leader, _ = stable_group(script, group, "leader", "old", instances=["first", "second"])
    third = script.begin(join(group, instance="third"), on="third")
    await_state(script, group, "PreparingRebalance", 3)
    replaced = script.begin(join(group, instance="third"), on="again")
    script.finish(third)
    script.send(heartbeat(group, leader.generation, leader.id, instance="first"))
    script.still_waits(replaced)
