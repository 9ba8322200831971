"""Several members at once: who waits for whom, what is chosen, and who is left behind."""

from __future__ import annotations

from collections.abc import Mapping

from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import commit, describe_groups, heartbeat, join, leave, subscription, sync
from tests.conformance.members import await_state, rejoin, stable_group
from tests.conformance.script import Script

exchanges = Exchanges("rebalances")


@exchanges.versions((0, 2, 3))
def a_second_member(script: Script, version: int) -> None:
    group = script.group()
    [first] = stable_group(script, group, "a")
    joining = script.begin(join(group), version, on="b")
    await_state(script, group, "PreparingRebalance", 2)
    script.send(heartbeat(group, first.generation, first.id), 0)
    script.still_waits(joining)


@exchanges.versions((0, 3, 4, 5, 7, 9))
def two_members_from_join_to_assignment(script: Script, version: int) -> None:
    group = script.group()
    [first] = stable_group(script, group, "a")
    second_id = script.ask(join(group), 9, on="b").member_id
    joining = script.begin(join(group, second_id), version, on="b")
    await_state(script, group, "PreparingRebalance", 2)
    script.send(heartbeat(group, first.generation, first.id))
    rejoining = script.begin(join(group, first.id), version, on="a")
    follower, leader = script.finish(joining), script.finish(rejoining)
    generation = leader.generation_id
    waiting = script.begin(sync(group, generation, follower.member_id), min(version, 5), on="b")
    script.still_waits(waiting)
    shares = {leader.member_id: b"for a", follower.member_id: b"for b"}
    script.send(sync(group, generation, leader.member_id, shares), min(version, 5), on="a")
    script.finish(waiting)
    script.send(heartbeat(group, generation, follower.member_id))
    script.send(describe_groups(group))


@exchanges.one
def what_is_refused_while_members_join(script: Script) -> None:
    group, topic = script.group(), script.topic()
    [first] = stable_group(script, group, "a")
    joining = script.begin(join(group), 3, on="b")
    await_state(script, group, "PreparingRebalance", 2)
    script.send(heartbeat(group, first.generation, first.id))
    script.send(heartbeat(group, first.generation + 1, first.id))
    script.send(sync(group, first.generation, first.id))
    script.send(sync(group, first.generation + 1, first.id))
    script.send(commit(group, topic, generation=first.generation, member_id=first.id))
    script.send(commit(group, topic, generation=first.generation + 1, member_id=first.id))
    script.send(commit(group, topic))
    script.send(describe_groups(group))
    script.still_waits(joining)


@exchanges.one
def what_is_refused_while_an_assignment_is_awaited(script: Script) -> None:
    group, topic = script.group(), script.topic()
    first, second = stable_group(script, group, "a", "b")
    rejoining = script.post(rejoin(group, first), on="a")
    await_state(script, group, "PreparingRebalance")
    script.ask(rejoin(group, second), on="b")
    generation = script.take(rejoining).generation_id
    for member in (first, second):
        script.send(heartbeat(group, generation, member.id))
        script.send(commit(group, topic, generation=generation, member_id=member.id))
    script.send(heartbeat(group, generation - 1, second.id))
    script.send(sync(group, generation - 1, second.id))
    script.send(commit(group, topic, generation=generation - 1, member_id=second.id))
    script.send(commit(group, topic), 2)
    script.send(describe_groups(group))


@exchanges.versions((0, 4, 9))
def a_follower_again_with_the_same_metadata(script: Script, version: int) -> None:
    group = script.group()
    first, second = stable_group(script, group, "a", "b")
    script.send(join(group, second.id), version, on="b")
    script.send(heartbeat(group, first.generation, first.id))


@exchanges.versions((0, 4, 9))
def a_follower_again_with_other_metadata(script: Script, version: int) -> None:
    group = script.group()
    first, second = stable_group(script, group, "a", "b")
    protocols = {"range": subscription("elsewhere")}
    pending = script.begin(join(group, second.id, protocols=protocols), version, on="b")
    await_state(script, group, "PreparingRebalance")
    script.send(heartbeat(group, first.generation, first.id))
    script.send(join(group, first.id), version, on="a")
    script.finish(pending)


@exchanges.one
def the_leader_again(script: Script) -> None:
    group = script.group()
    first, _ = stable_group(script, group, "a", "b")
    pending = script.begin(join(group, first.id), on="a")
    await_state(script, group, "PreparingRebalance")
    script.still_waits(pending)


@exchanges.one
def a_follower_again_before_its_assignment(script: Script) -> None:
    group = script.group()
    first, second = stable_group(script, group, "a", "b")
    rejoining = script.post(rejoin(group, first), on="a")
    await_state(script, group, "PreparingRebalance")
    script.ask(rejoin(group, second), on="b")
    script.take(rejoining)
    script.send(rejoin(group, second), on="b")
    script.send(rejoin(group, first), on="a")
    script.send(heartbeat(group, first.generation + 1, second.id))


@exchanges.one
def a_third_member_comes_before_the_assignment(script: Script) -> None:
    group = script.group()
    first, second = stable_group(script, group, "a", "b")
    rejoining = script.post(rejoin(group, first), on="a")
    await_state(script, group, "PreparingRebalance")
    script.ask(rejoin(group, second), on="b")
    generation = script.take(rejoining).generation_id
    waiting = script.begin(sync(group, generation, second.id), on="b")
    script.still_waits(waiting)
    joining = script.begin(join(group), 3, on="c")
    script.finish(waiting)
    script.send(sync(group, generation, first.id, {first.id: b"late"}), on="a")
    again = [script.begin(rejoin(group, first), on="a"), script.begin(rejoin(group, second), on="b")]
    for pending in (joining, *again):
        script.finish(pending)


@exchanges.one
def the_leader_leaves(script: Script) -> None:
    group = script.group()
    first, second, third = stable_group(script, group, "a", "b", "c")
    script.send(leave(group, (first.id, None)))
    script.send(heartbeat(group, first.generation, second.id))
    pending = script.begin(rejoin(group, third), on="c")
    script.still_waits(pending)
    script.ask(leave(group, (second.id, None)))
    script.finish(pending)


@exchanges.one
def a_member_leaves_while_others_join(script: Script) -> None:
    group = script.group()
    first, second = stable_group(script, group, "a", "b")
    joining = script.begin(join(group), 3, on="c")
    await_state(script, group, "PreparingRebalance", 3)
    rejoining = script.begin(rejoin(group, first), on="a")
    script.still_waits(rejoining)
    script.send(leave(group, (second.id, None)))
    script.finish(joining)
    script.finish(rejoining)


@exchanges.one
def a_member_that_does_not_join_again_is_left_behind(script: Script) -> None:
    group = script.group()
    first, second = stable_group(script, group, "a", "b", rebalance_ms=400)
    pending = script.begin(rejoin(group, first, rebalance_ms=400), on="a")
    script.finish(pending)
    script.send(heartbeat(group, first.generation + 1, second.id))
    script.send(rejoin(group, second), on="b")
    script.send(heartbeat(group, first.generation + 1, first.id))


@exchanges.one
def a_leader_that_does_not_join_again_is_left_behind(script: Script) -> None:
    group = script.group()
    first, second = stable_group(script, group, "a", "b", rebalance_ms=400)
    protocols = {"range": subscription("elsewhere")}
    script.send(rejoin(group, second, protocols=protocols, rebalance_ms=400), on="b")
    script.send(heartbeat(group, first.generation, first.id))


@exchanges.one
def a_static_member_that_does_not_join_again_stays(script: Script) -> None:
    group = script.group()
    first, second = stable_group(script, group, "a", "b", instances=["first", "second"], rebalance_ms=400)
    script.send(rejoin(group, first, rebalance_ms=400), on="a")
    script.send(heartbeat(group, first.generation + 1, second.id, instance="second"))
    script.send(describe_groups(group))


@exchanges.one
def a_leader_that_never_assigns_is_removed(script: Script) -> None:
    group = script.group()
    first, second = stable_group(script, group, "a", "b", rebalance_ms=400)
    rejoining = script.post(rejoin(group, first, rebalance_ms=400), on="a")
    await_state(script, group, "PreparingRebalance")
    script.ask(rejoin(group, second, rebalance_ms=400), on="b")
    generation = script.take(rejoining).generation_id
    script.send(sync(group, generation, second.id), on="b")
    script.send(heartbeat(group, generation, first.id))
    script.send(rejoin(group, second), on="b")


@exchanges.one
def a_follower_that_never_asks_for_its_assignment_is_removed(script: Script) -> None:
    group = script.group()
    first, second = stable_group(script, group, "a", "b", rebalance_ms=400)
    rejoining = script.post(rejoin(group, first, rebalance_ms=400), on="a")
    await_state(script, group, "PreparingRebalance")
    script.ask(rejoin(group, second, rebalance_ms=400), on="b")
    generation = script.take(rejoining).generation_id
    script.send(sync(group, generation, first.id, {first.id: b"all"}), on="a")
    await_state(script, group, "PreparingRebalance", 1)
    script.send(heartbeat(group, generation, second.id))
    script.send(heartbeat(group, generation, first.id))


VOTES: dict[str, tuple[Mapping[str, bytes], ...]] = {
    "all prefer the same": ({"x": b"", "y": b""}, {"x": b"", "y": b""}),
    "the first is not for all": ({"x": b"1", "y": b"1"}, {"y": b"2"}),
    "a tie": ({"x": b"1", "y": b"1"}, {"y": b"2", "x": b"2"}),
    "two against one": ({"x": b"1", "y": b"1"}, {"y": b"2", "x": b"2"}, {"y": b"3", "x": b"3"}),
    "one of three common": ({"x": b"1", "y": b"1", "z": b"1"}, {"z": b"2", "y": b"2"}, {"z": b"3", "x": b"3"}),
}


@exchanges.cases(VOTES)
def a_vote_for_a_protocol(script: Script, votes: tuple[Mapping[str, bytes], ...]) -> None:
    group = script.group()
    connections = "abc"[: len(votes)]
    ids = [
        script.ask(join(group, protocols=vote), 9, on=name).member_id
        for name, vote in zip(connections, votes, strict=True)
    ]
    script.ask(join(group, ids[0], protocols=votes[0]), on="a")
    others = []
    for number in range(1, len(votes)):
        others.append(script.begin(join(group, ids[number], protocols=votes[number]), on=connections[number]))
        await_state(script, group, "PreparingRebalance", number + 1)
    script.send(join(group, ids[0], protocols=votes[0]), on="a")
    for pending in others:
        script.finish(pending)


@exchanges.one
def a_connection_that_closes_while_it_waits(script: Script) -> None:
    group = script.group()
    [first] = stable_group(script, group, "a")
    script.post(join(group), 3, on="b")
    await_state(script, group, "PreparingRebalance", 2)
    script.close("b")
    script.send(rejoin(group, first), on="a")


@exchanges.one
def a_join_that_waits_is_sent_again(script: Script) -> None:
    group = script.group()
    [first] = stable_group(script, group, "a")
    second_id = script.ask(join(group), 9, on="b").member_id
    waiting = script.begin(join(group, second_id), on="b")
    await_state(script, group, "PreparingRebalance", 2)
    again = script.begin(join(group, second_id), on="b again")
    script.still_waits(again)
    script.still_waits(waiting)
    script.send(join(group, first.id), on="a")
    script.finish(again)
