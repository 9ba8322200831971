"""Partitions that move, case by case: as Apache Kafka 4.3.1 decides it. And elections that somebody asks for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.changes import BrokerDown, BrokerUp, ChangedStates, NewTopic
from ottla.controller.cluster import Cluster
from ottla.controller.elections import PREFERRED, UNCLEAN, decide_elections
from ottla.controller.layout import NOBODY, BrokerNode, PartitionState, TopicNode
from ottla.controller.leaders import rules_in
from ottla.controller.reassignments import Moves, Placement, Reassignment, moving, placement_of
from ottla.wire.errors import ApiError, ErrorCode

BROKERS = (1, 2, 3, 4)


class World:
    """A topic with one partition on brokers that are all there, unless a test says otherwise."""

    def __init__(self, *replicas: int, leader: int | None = None, in_sync: Sequence[int] | None = None) -> None:
        self.cluster = Cluster()
        for node_id in BROKERS:
            self.cluster.replay(BrokerUp(node_id, 10 + node_id, BrokerNode({})))
        state = PartitionState(replicas[0] if leader is None else leader, 5, tuple(in_sync or replicas))
        self.cluster.replay(NewTopic("t", TopicNode(b"t" * 16, [list(replicas)]), {}, [state]))

    def down(self, *brokers: int) -> World:
        for node_id in brokers:
            self.cluster.replay(BrokerDown(node_id))
        return self

    @property
    def placement(self) -> Placement:
        return placement_of(self.cluster.topics["t"], 0, self.cluster.states["t"][0])

    def moves(self) -> Moves:
        return Moves(self.cluster, rules_in(self.cluster))

    def reassign(self, *replicas: int, may_change_factor: bool = True) -> Placement:
        moves = self.moves()
        moves.reassign(Reassignment("t", 0, replicas), may_change_factor=may_change_factor)
        return self.bring_about(moves)

    def cancel(self) -> Placement:
        moves = self.moves()
        moves.reassign(Reassignment("t", 0, None))
        return self.bring_about(moves)

    def in_sync(self, *brokers: int) -> Placement:
        """What the leader has proposed was decided."""
        before = self.cluster.states["t"][0]
        state = before._replace(in_sync=brokers, partition_epoch=before.partition_epoch + 1)
        states = {"t": {0: state}}
        moves = self.moves()
        moves.states_changed(states)
        return self.bring_about(moves, states)

    def bring_about(self, moves: Moves, states: dict[str, dict[int, PartitionState]] | None = None) -> Placement:
        epoch = self.placement.state.partition_epoch
        changes = moves.changes(states)
        for change in changes:
            list(change.operations())
            self.cluster.replay(change)
        assert self.placement.state.partition_epoch == epoch + bool(changes)
        return self.placement


def told(placement: Placement) -> tuple[list[int], list[int], list[int], int, int, set[int]]:
    """Replicas, who comes, who goes, leader, its epoch, who is in sync."""
    replicas, adding, removing, state = placement
    return replicas, adding, removing, state.leader_id, state.leader_epoch, set(state.in_sync)


@pytest.mark.parametrize(
    ("target", "begun", "ended"),
    [
        ([1, 2], ([1, 2], [], [], 1, 5, {1, 2}), None),
        ([2, 1], ([2, 1], [], [], 1, 5, {1, 2}), None),
        ([1], ([1], [], [], 1, 6, {1}), None),
        ([2], ([2], [], [], 2, 6, {2}), None),
        ([1, 2, 3], ([1, 2, 3], [3], [], 1, 5, {1, 2}), ([1, 2, 3], [], [], 1, 5, {1, 2, 3})),
        ([1, 3], ([1, 3, 2], [3], [2], 1, 5, {1, 2}), ([1, 3], [], [], 1, 6, {1, 3})),
        ([3, 2], ([3, 2, 1], [3], [1], 1, 5, {1, 2}), ([3, 2], [], [], 3, 6, {2, 3})),
        ([3], ([3, 1, 2], [3], [1, 2], 1, 5, {1, 2}), ([3], [], [], 3, 6, {3})),
        ([4, 3], ([4, 3, 1, 2], [3, 4], [1, 2], 1, 5, {1, 2}), ([4, 3], [], [], 4, 6, {3, 4})),
    ],
)
def test_a_partition_moves(target: list[int], begun: object, ended: object) -> None:
    world = World(1, 2)
    assert told(world.reassign(*target)) == begun
    if ended is not None:
        assert told(world.in_sync(1, 2, *(each for each in target if each not in (1, 2)))) == ended
    assert not list(moving(world.cluster))


def test_it_does_not_end_before_all_that_come_are_in_sync() -> None:
    world = World(1, 2)
    world.reassign(3, 4)
    assert told(world.in_sync(1, 2, 3)) == ([3, 4, 1, 2], [3, 4], [1, 2], 1, 5, {1, 2, 3})
    assert told(world.in_sync(1, 4, 3)) == ([3, 4], [], [], 3, 6, {3, 4})


def test_it_does_not_end_where_nobody_in_sync_would_be_left() -> None:
    world = World(1, 2, in_sync=[1])
    assert told(world.reassign(2)) == ([2, 1], [], [1], 1, 5, {1})
    assert told(world.in_sync(1, 2)) == ([2], [], [], 2, 6, {2})


def test_it_does_not_end_while_nobody_who_stays_is_there_to_lead() -> None:
    world = World(1, 2)
    world.reassign(3)
    world.down(3)
    assert told(world.in_sync(1, 2, 3))[:3] == ([3, 1, 2], [3], [1, 2])


def test_another_target_takes_the_place_of_the_first() -> None:
    world = World(1, 2)
    world.reassign(3, 4)
    assert told(world.in_sync(1, 2, 3)) == ([3, 4, 1, 2], [3, 4], [1, 2], 1, 5, {1, 2, 3})
    assert told(world.reassign(1, 4)) == ([1, 4, 2], [4], [2], 1, 6, {1, 2})  # the third is gone at once
    assert told(world.in_sync(1, 2, 4)) == ([1, 4], [], [], 1, 7, {1, 4})


def test_who_was_to_come_stays_where_nobody_else_is_in_sync() -> None:
    world = World(1, 2)
    world.reassign(3, 4)
    state = world.cluster.states["t"][0]
    world.cluster.replay(ChangedStates({"t": {0: state._replace(leader_id=3, in_sync=(3,))}}))
    assert told(world.reassign(1)) == ([1, 3, 4, 2], [], [2, 3, 4], 3, 5, {3})
    assert told(world.in_sync(3, 1)) == ([1], [], [], 1, 6, {1})


def test_what_moves_is_taken_back() -> None:
    world = World(1, 2)
    world.reassign(3, 2)
    world.in_sync(1, 2)
    assert told(world.cancel()) == ([2, 1], [], [], 1, 6, {1, 2})


def test_what_is_taken_back_is_not_led_by_who_came() -> None:
    world = World(1, 2)
    world.reassign(3, 4)
    state = world.cluster.states["t"][0]
    world.cluster.replay(ChangedStates({"t": {0: state._replace(leader_id=3, in_sync=(2, 3), leader_epoch=9)}}))
    assert told(world.cancel()) == ([1, 2], [], [], 2, 10, {2})


def test_nobody_in_sync_is_left_to_take_it_back_to() -> None:
    world = World(1, 2)
    world.reassign(3, 4)
    state = world.cluster.states["t"][0]
    world.cluster.replay(ChangedStates({"t": {0: state._replace(leader_id=3, in_sync=(3,))}}))
    with pytest.raises(ApiError, match="Unable to revert partition assignment for t:0 because it would require an unc"):
        world.cancel()
    world.cluster.topic_configs["t"]["unclean.leader.election.enable"] = "true"
    assert told(world.cancel())[3:] == (1, 6, {1})


@pytest.mark.parametrize(
    ("asked", "may_change", "code", "message"),
    [
        (("t", 0, [1, 9]), True, 39, "includes broker 9, but no such broker is registered."),
        (("t", 0, [1, 1]), True, 39, "includes the broker 1 more than once."),
        (("t", 0, []), True, 39, "includes an empty replica list."),
        (("t", 0, [1]), False, 38, "The replication factor is changed from 2 to 1"),
        (("t", 1, [1]), True, 3, "Unable to find partition t:1."),
        (("t", -1, [1]), True, 3, "Unable to find partition t:-1."),
        (("u", 0, [1]), True, 3, "Unable to find a topic named u."),
        (("u", 0, None), True, 3, "Unable to find a topic named u."),
        (("t", 0, None), True, 85, ""),
    ],
)
def test_what_cannot_be(asked: tuple[str, int, list[int] | None], may_change: bool, code: int, message: str) -> None:
    moves = World(1, 2).moves()
    with pytest.raises(ApiError) as refused:
        moves.reassign(Reassignment(*asked), may_change_factor=may_change)
    assert (refused.value.code, (refused.value.message or "").endswith(message)) == (code, True)
    assert moves.changes() == []


def test_a_partition_that_moves_keeps_its_factor_without_those_that_come() -> None:
    world = World(1, 2)
    world.reassign(3, 4)
    assert told(world.reassign(3, 1, may_change_factor=False))[:3] == ([3, 1, 2], [3], [2])


def test_what_moves_is_listed() -> None:
    world = World(1, 2)
    world.reassign(3, 4)
    [found] = moving(world.cluster)
    assert (found.name, found.partition, told(found.placement)[:3]) == ("t", 0, ([3, 4, 1, 2], [3, 4], [1, 2]))
    assert len(list(moving(world.cluster, [("t", [0, 7]), ("u", [0])]))) == 1
    assert not list(moving(world.cluster, [("t", [1])]))


@given(st.permutations(BROKERS), st.lists(st.permutations(BROKERS), max_size=4), st.data())
def test_whatever_is_asked_the_last_target_is_reached_and_somebody_in_sync_leads(
    first: list[int], targets: list[list[int]], data: st.DataObject
) -> None:
    world = World(*first[: data.draw(st.integers(1, 4))])
    target = world.placement.replicas
    for order in targets:
        target = order[: data.draw(st.integers(1, 4))]
        world.reassign(*target)
        state = world.placement.state
        assert state.leader_id in state.in_sync
        assert set(state.in_sync) <= set(world.placement.replicas)
    if world.placement.is_moving:
        world.in_sync(*world.placement.replicas)
    placement = world.placement
    assert (placement.replicas, placement.is_moving) == (target, False)
    assert placement.state.leader_id in placement.state.in_sync
    assert set(placement.state.in_sync) <= set(target)


# Elections


def elect(world: World, kind: int, index: int = 0, name: str = "t") -> int | tuple[int, str | None]:
    """The leader, or why there is no other."""
    [elected], changes = decide_elections(world.cluster, rules_in(world.cluster), kind, [(name, [index])])
    for change in changes:
        world.cluster.replay(change)
    if elected.refusal is not None:
        assert not changes
        return int(elected.refusal.code), elected.refusal.message
    return world.cluster.states["t"][0].leader_id


NOT_NEEDED = (84, "Leader election not needed for topic partition.")


def test_the_preferred_leader_is_elected() -> None:
    assert elect(World(1, 2, leader=2), PREFERRED) == 1
    assert elect(World(1, 2), PREFERRED) == NOT_NEEDED
    assert elect(World(1, 2, leader=2, in_sync=[2]), PREFERRED) == (80, "The preferred leader was not available.")
    assert elect(World(1, 2, leader=2).down(1), PREFERRED) == (80, "The preferred leader was not available.")


def test_somebody_is_elected_at_any_price() -> None:
    assert elect(World(1, 2, leader=2), UNCLEAN) == NOT_NEEDED
    assert elect(World(1, 2, leader=NOBODY, in_sync=[1]).down(1), UNCLEAN) == 2
    refused = elect(World(1, 2, leader=NOBODY, in_sync=[1]).down(1, 2), UNCLEAN)
    assert refused == (83, "Eligible topic partition leaders are not available.")


def test_who_is_not_there_is_not_elected() -> None:
    assert elect(World(1, 2), PREFERRED, 7) == (3, "No such partition as t-7")
    assert elect(World(1, 2), PREFERRED, 0, "u") == (3, "No such topic as u")


def test_all_are_elected_and_those_that_need_none_are_not_told() -> None:
    world = World(1, 2, leader=2)
    world.cluster.replay(NewTopic("u", TopicNode(b"u" * 16, [[1]]), {}, [PartitionState(1, 0, (1,))]))
    asked = [("t", [0]), ("u", [0])]
    answers, changes = decide_elections(world.cluster, rules_in(world.cluster), PREFERRED, asked, only_needed=True)
    assert [(each.name, each.refusal) for each in answers] == [("t", None)]
    assert len(changes) == 1


def test_an_election_is_of_a_new_epoch() -> None:
    world = World(1, 2, leader=2)
    elect(world, PREFERRED)
    state = world.cluster.states["t"][0]
    assert (state.leader_epoch, state.partition_epoch) == (6, 1)


def test_refusals_have_the_codes_of_the_protocol() -> None:
    assert (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE) == (80, 83)
