"""Elections: nobody leads who lacks what was committed, and epochs only grow."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.controller.changes import (
    BrokerDown,
    BrokerLeaving,
    BrokerUp,
    Change,
    ChangedBrokerConfig,
    ChangedStates,
    ChangedTopicConfig,
    NewTopic,
)
from ottla.controller.cluster import Cluster
from ottla.controller.feed import changes_between
from ottla.controller.layout import NOBODY, BrokerNode, PartitionState, TopicNode, first_states
from ottla.controller.leaders import (
    Proposal,
    Rules,
    Settings,
    altered,
    broker_down,
    broker_leaving,
    broker_up,
    imbalanced,
    led_by,
    preferred_election,
    replicas_failed,
    rules_changed,
    rules_in,
    settled,
    stamped,
    unclean_election,
)
from ottla.controller.steps import A_STEP, finished
from ottla.log.loss import Loss
from ottla.wire.errors import ApiError, ErrorCode

BROKERS = (1, 2, 3, 4)
PARTITIONS = ((1, 2, 3), (2, 3, 1), (4,), (3, 4))
NODE = BrokerNode({})
ALL_IN_SYNC = PartitionState(1, 5, (1, 2, 3), partition_epoch=7)


def rules(*replicas: int, least: int = 1, is_unclean: bool = False) -> Rules:
    return Rules(replicas or (1, 2, 3), least, is_unclean)


def cluster(partitions: Sequence[Sequence[int]] = PARTITIONS, **overrides: str) -> Cluster:
    made = Cluster()
    made.controller_epoch = 9
    for node_id in BROKERS:
        made.replay(BrokerUp(node_id, node_id * 100, NODE))
    replicas = [list(each) for each in partitions]
    texts = {key.replace("_", "."): text for key, text in overrides.items()}
    made.replay(NewTopic("t", TopicNode(bytes(16), replicas), texts, first_states(replicas)))
    return made


# One partition


@pytest.mark.parametrize(
    ("live", "rule", "leader", "in_sync", "eligible"),
    [
        ([1, 2, 3], rules(), 1, (1, 2, 3), ()),
        ([2, 3], rules(), 2, (2, 3), ()),
        ([1, 3], rules(), 1, (1, 3), ()),
        ([3], rules(), 3, (3,), ()),
        ([3], rules(least=2), 3, (3,), (1, 2)),
        ([3], rules(least=3), 3, (3,), (1, 2)),
        ([], rules(least=2), NOBODY, (1, 2, 3), ()),
        ([], rules(is_unclean=True), NOBODY, (1, 2, 3), ()),
    ],
)
def test_the_first_live_replica_in_sync_leads(
    live: list[int], rule: Rules, leader: int, in_sync: tuple[int, ...], eligible: tuple[int, ...]
) -> None:
    after = settled(ALL_IN_SYNC, rule, live)
    assert (after.leader_id, after.in_sync, after.eligible) == (leader, in_sync, eligible)
    assert after.leader_epoch == 5 + (leader != 1)
    assert after.partition_epoch == 7 + (after is not ALL_IN_SYNC)
    assert settled(after, rule, live) is after


def test_the_last_in_sync_is_waited_for_and_an_eligible_one_is_as_good() -> None:
    state = PartitionState(1, 5, (1,), partition_epoch=7, eligible=(2,))
    nobody = settled(state, rules(least=2), [3])
    assert nobody == state._replace(leader_id=NOBODY, leader_epoch=6, partition_epoch=8)
    assert settled(nobody, rules(least=2), [3]) is nobody
    again = settled(nobody, rules(least=2), [1, 3])
    assert (again.leader_id, again.in_sync, again.eligible, again.leader_epoch) == (1, (1,), (2,), 7)
    other = settled(nobody, rules(least=2), [2, 3])
    assert (other.leader_id, other.in_sync, other.eligible, other.leader_epoch) == (2, (2,), (1,), 7)
    unclean = settled(nobody, rules(least=2, is_unclean=True), [3])
    assert (unclean.leader_id, unclean.in_sync, unclean.eligible) == (3, (3,), ())


def test_one_that_restarted_leads_in_a_new_epoch() -> None:
    after = settled(ALL_IN_SYNC, rules(), BROKERS, restarted=1)
    assert after == ALL_IN_SYNC._replace(leader_epoch=6, partition_epoch=8)
    assert settled(ALL_IN_SYNC, rules(), BROKERS, restarted=2) is ALL_IN_SYNC


@pytest.mark.parametrize("loss", [Loss.TAIL, Loss.ALL])
def test_one_that_lost_data_gives_way_to_any_other_member(loss: Loss) -> None:
    after = settled(ALL_IN_SYNC, rules(), BROKERS, restarted=1, loss=loss)
    assert (after.leader_id, after.in_sync, after.last_known) == (2, (2, 3), ())
    alone = PartitionState(1, 5, (1,), eligible=(2, 3))
    after = settled(alone, rules(least=2), [1, 3], restarted=1, loss=loss)
    assert (after.leader_id, after.in_sync, after.eligible) == (3, (3,), (2,))


def test_one_with_rotten_records_goes_on_leading_its_other_partitions() -> None:
    known = cluster([(1, 2), (1, 2)], min_insync_replicas="2")
    for node_id in (2, 3, 4):
        for change in finished(broker_down(known, rules_in(known), node_id)):
            known.replay(change)
    assert {(state.leader_id, state.in_sync, state.eligible) for state in known.states["t"]} == {(1, (1,), (2,))}
    for change in finished(broker_up(known, rules_in(known), 1, 101, NODE, rotten={(bytes(16), 1)})):
        known.replay(change)
    sound, rotten = known.states["t"]
    assert (sound.leader_id, sound.in_sync, sound.eligible) == (1, (1,), (2,))
    assert (rotten.leader_id, rotten.in_sync, rotten.eligible) == (NOBODY, (2,), ())


@pytest.mark.parametrize("loss", [Loss.NOTHING, Loss.TAIL])
def test_a_broker_is_taken_in_when_all_is_decided_that_follows_from_its_start(loss: Loss) -> None:
    """The changes may be made one by one, and the controller may go in between: then the broker tells it all again."""
    known = cluster([(1, 2), (1, 2)])
    *before, last = finished(broker_up(known, rules_in(known), 1, 101, NODE, loss=loss))
    for change in before:
        known.replay(change)
    assert {state.leader_epoch for state in known.states["t"]} == {1}
    assert known.brokers[1].epoch == 100
    known.replay(last)
    assert known.brokers[1].epoch == 101


def test_one_that_lacks_the_last_records_leads_where_nobody_else_is_in_sync() -> None:
    after = settled(PartitionState(1, 5, (1,)), rules(), [1], restarted=1, loss=Loss.TAIL)
    assert (after.leader_id, after.in_sync, after.leader_epoch) == (1, (1,), 6)


def test_one_that_lost_all_never_leads_what_others_have() -> None:
    """Or they would cut their logs to nothing."""
    alone = PartitionState(1, 5, (1,))
    after = settled(alone, rules(), BROKERS, restarted=1, loss=Loss.ALL)
    assert (after.leader_id, after.in_sync) == (NOBODY, ())
    assert unclean_election(after, rules(), BROKERS).leader_id == 2
    after = settled(alone, rules(1), BROKERS, restarted=1, loss=Loss.ALL)
    assert (after.leader_id, after.in_sync) == (1, (1,))  # nobody else has anything


def test_after_a_power_failure_of_all_those_lead_that_have_most() -> None:
    state = PartitionState(NOBODY, 5, (1, 2, 3))
    for node_id in (3, 2):
        state = settled(state, rules(), [node_id], restarted=node_id, loss=Loss.TAIL)
    assert (state.leader_id, state.in_sync, state.last_known) == (NOBODY, (1,), (3, 2))
    assert unclean_election(state, rules(), BROKERS[1:]).leader_id == 2
    is_back = settled(state, rules(), BROKERS, restarted=1, loss=Loss.TAIL)
    assert (is_back.leader_id, is_back.in_sync) == (1, (1,))
    is_empty = settled(state, rules(), BROKERS, restarted=1, loss=Loss.ALL)
    assert (is_empty.leader_id, is_empty.in_sync, is_empty.last_known) == (2, (3, 2), ())


def test_one_that_is_taken_for_alive_and_comes_back_empty_gives_way() -> None:
    """Its session has outlived it, so it was made the leader while the others came back."""
    state = PartitionState(1, 5, (1,), last_known=(3, 2))
    after = settled(state, rules(), BROKERS, restarted=1, loss=Loss.ALL)
    assert (after.leader_id, after.in_sync, after.leader_epoch) == (2, (3, 2), 6)


def test_one_that_is_about_to_stop_keeps_what_nobody_else_can_lead() -> None:
    known = cluster(min_insync_replicas="1")
    [leaving, changed] = finished(broker_leaving(known, rules_in(known), 4))
    assert leaving == BrokerLeaving(4)
    assert isinstance(changed, ChangedStates)
    assert changed.states == {"t": {3: PartitionState(3, 0, (3,), 9, 1)}}
    for change in (leaving, changed):
        known.replay(change)
    assert list(led_by(known, 4)) == [("t", 2)]
    assert finished(broker_leaving(known, rules_in(known), 4)) == []
    [_, down] = finished(broker_down(known, rules_in(known), 3))
    assert isinstance(down, ChangedStates)
    assert 2 not in down.states["t"]  # broker 4 still leads it
    assert down.states["t"][3].leader_id == NOBODY  # it left the in-sync set


# Elections that are asked for


def test_others_lead_where_a_disk_failed() -> None:
    known = cluster(min_insync_replicas="2")
    failed = [(bytes(16), 0), (bytes(16), 2), (b"of another topic.", 0)]
    for node_id, partitions in ((1, failed[:1]), (4, failed[1:])):
        for change in finished(replicas_failed(known, rules_in(known), node_id, partitions)):
            known.replay(change)
    assert known.states["t"][0] == PartitionState(2, 1, (2, 3), 9, 1)
    assert known.states["t"][1].leader_epoch == 0, "the other disk of broker 1 works"
    assert (known.states["t"][2].leader_id, known.states["t"][2].in_sync) == (NOBODY, (4,))
    assert finished(replicas_failed(known, rules_in(known), 1, failed[:1])) == []
    for node_id in (1, 4):
        for change in finished(broker_up(known, rules_in(known), node_id, node_id * 100 + 1, NODE)):
            known.replay(change)
    assert not known.failing
    assert known.states["t"][2].leader_id == 4, "after its next start it has another try"


def test_a_disk_with_many_replicas_is_dealt_with_in_steps() -> None:
    known, count = Cluster(), 4 * A_STEP
    for node_id in (1, 2):
        known.replay(BrokerUp(node_id, node_id, NODE))
    node = TopicNode(bytes(16), [[1, 2]] * count)
    known.replay(NewTopic("t", node, {}, [PartitionState(1, 0, (1, 2))] * count))
    steps = replicas_failed(known, rules_in(known), 1, [(bytes(16), index) for index in range(count)])
    for _ in range(4):
        next(steps)
    for change in finished(steps):
        known.replay(change)
    assert {state.leader_id for state in known.states["t"]} == {2}


def test_preferred_and_unclean_elections() -> None:
    state = PartitionState(2, 5, (2, 1))
    assert preferred_election(state, rules(), BROKERS) == PartitionState(1, 6, (2, 1), partition_epoch=1)
    for leader, in_sync, live, code in (
        (1, (1, 2), BROKERS, ErrorCode.ELECTION_NOT_NEEDED),
        (2, (2, 3), BROKERS, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (2, (2, 1), (2, 3), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ):
        with pytest.raises(ApiError) as refused:
            preferred_election(PartitionState(leader, 5, in_sync), rules(), live)
        assert refused.value.code is code
    lost = PartitionState(NOBODY, 5, (1,))
    assert unclean_election(lost, rules(), [3]) == PartitionState(3, 6, (3,), partition_epoch=1)
    for before, usable, code in (
        (state, (2, 3), ErrorCode.ELECTION_NOT_NEEDED),
        (lost, (4,), ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ):
        with pytest.raises(ApiError) as refused:
            unclean_election(before, rules(), usable)
        assert refused.value.code is code


def test_leaders_are_balanced_where_too_many_are_not_the_preferred() -> None:
    known = cluster([(1, 2)] * 10)
    known.replay(stamped(known, {"t": {0: PartitionState(2, 1, (1, 2))}}))
    assert imbalanced(known, 10) == {}
    known.replay(stamped(known, {"t": {1: PartitionState(2, 1, (1, 2)), 2: PartitionState(2, 1, (2,))}}))
    assert imbalanced(known, 10) == {
        "t": {index: PartitionState(1, 2, (1, 2), controller_epoch=9, partition_epoch=1) for index in (0, 1)}
    }
    known.replay(BrokerLeaving(1))
    assert imbalanced(known, 10) == {}


# What a leader proposes


@pytest.mark.parametrize(
    ("proposal", "code"),
    [
        (Proposal(1, 6, 7, [(1, -1)]), ErrorCode.NOT_CONTROLLER),
        (Proposal(1, 5, 8, [(1, -1)]), ErrorCode.NOT_CONTROLLER),
        (Proposal(1, 4, 7, [(1, -1)]), ErrorCode.FENCED_LEADER_EPOCH),
        (Proposal(2, 5, 7, [(1, -1)]), ErrorCode.INVALID_REQUEST),
        (Proposal(1, 5, 6, [(1, -1)]), ErrorCode.INVALID_UPDATE_VERSION),
        (Proposal(1, 5, 7, []), ErrorCode.INVALID_REQUEST),
        (Proposal(1, 5, 7, [(2, -1)]), ErrorCode.INVALID_REQUEST),
        (Proposal(1, 5, 7, [(1, -1), (4, -1)]), ErrorCode.INVALID_REQUEST),
        (Proposal(1, 5, 7, [(1, -1), (2, -1), (2, 200)]), ErrorCode.INVALID_REQUEST),
        (Proposal(1, 5, 7, [(1, -1), (2, 199)]), ErrorCode.INELIGIBLE_REPLICA),
        (Proposal(1, 5, 7, [(1, 100), (3, -1)]), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_a_proposal_that_is_refused(proposal: Proposal, code: ErrorCode) -> None:
    known = cluster()
    known.replay(BrokerDown(3))
    with pytest.raises(ApiError) as refused:
        altered(known, ALL_IN_SYNC, rules(), proposal)
    assert refused.value.code is code


def test_a_proposal_that_is_followed() -> None:
    known = cluster()
    after = altered(known, ALL_IN_SYNC, rules(least=3), Proposal(1, 5, 7, [(2, 200), (1, -1)]))
    assert after == ALL_IN_SYNC._replace(in_sync=(1, 2), eligible=(3,), partition_epoch=8)
    again = altered(known, after, rules(least=3), Proposal(1, 5, 8, [(3, -1), (2, 200), (1, -1)]))
    assert again == ALL_IN_SYNC._replace(partition_epoch=9)
    assert altered(known, again, rules(least=3), Proposal(1, 5, 9, [(1, -1), (2, -1), (3, -1)])) is again
    known.replay(BrokerLeaving(1))  # it leads until another can
    assert altered(known, after, rules(), Proposal(1, 5, 8, [(1, -1), (3, -1)])).in_sync == (1, 3)


# All of it together


class Elections(RuleBasedStateMachine):
    """Records are committed by the leaders' rules, and brokers come and go by the controller's."""

    @initialize(least=st.integers(1, 3))
    def begin(self, least: int) -> None:
        self.cluster = cluster()
        self.rules_of = rules_in(self.cluster, Settings(least))
        self.epochs = {node_id: node_id * 100 for node_id in BROKERS}
        self.committed = [0] * len(PARTITIONS)
        self.held = [dict.fromkeys(replicas, 0) for replicas in PARTITIONS]

    def make(self, changes: Sequence[Change]) -> None:
        before = list(self.cluster.states["t"])
        for change in changes:
            self.cluster.replay(change)
        for index, (old, new) in enumerate(zip(before, self.cluster.states["t"], strict=True)):
            self.check_step(index, old, new)

    def check_step(self, index: int, old: PartitionState, new: PartitionState) -> None:
        if new == old:
            return
        assert new.partition_epoch == old.partition_epoch + 1
        assert new.leader_epoch >= old.leader_epoch + (new.leader_id != old.leader_id)
        assert new.controller_epoch == 9
        if new.leader_epoch != old.leader_epoch and new.leader_id != NOBODY:
            assert self.held[index][new.leader_id] >= self.committed[index]

    def broker(self, node_id: int) -> bool:
        return self.cluster.is_alive(node_id)

    @rule(index=st.integers(0, len(PARTITIONS) - 1))
    def commit(self, index: int) -> None:
        state, rule = self.cluster.states["t"][index], self.rules_of("t", index)
        is_there = state.leader_id != NOBODY and all(self.broker(member) for member in state.in_sync)
        if is_there and len(state.in_sync) >= rule.least:
            self.committed[index] += 1
            for member in state.in_sync:
                self.held[index][member] = self.committed[index]

    @rule(index=st.integers(0, len(PARTITIONS) - 1), members=st.sets(st.sampled_from(BROKERS)))
    def propose(self, index: int, members: set[int]) -> None:
        """Who joins has what the leader has."""
        state = self.cluster.states["t"][index]
        if state.leader_id == NOBODY:
            return
        in_sync = {state.leader_id, *members & {*PARTITIONS[index]}}
        asked = Proposal(state.leader_id, state.leader_epoch, state.partition_epoch, [(each, -1) for each in in_sync])
        try:
            after = altered(self.cluster, state, self.rules_of("t", index), asked)
        except ApiError:
            assert (
                not in_sync - self.cluster.failed_at(bytes(16), index)
                == in_sync
                <= {
                    *self.cluster.usable,
                    state.leader_id,
                }
            )
            return
        if after is not state:
            for member in set(after.in_sync) - set(state.in_sync):
                self.held[index][member] = self.committed[index]
            self.make([stamped(self.cluster, {"t": {index: after}})])

    @rule(node_id=st.sampled_from(BROKERS), registered=st.booleans())
    def stop(self, node_id: int, registered: bool) -> None:
        self.make(finished(broker_down(self.cluster, self.rules_of, node_id, is_registered=registered)))

    @rule(node_id=st.sampled_from(BROKERS))
    def leave(self, node_id: int) -> None:
        self.make(finished(broker_leaving(self.cluster, self.rules_of, node_id)))

    @rule(node_id=st.sampled_from(BROKERS), loss=st.sampled_from(Loss))
    def start(self, node_id: int, loss: Loss) -> None:
        """Often without anybody having seen that it was gone."""
        self.epochs[node_id] += 1
        if loss:
            for index, held in enumerate(self.held):
                state = self.cluster.states["t"][index]
                if node_id in held:
                    held[node_id] = max(0, held[node_id] - 1) if loss is Loss.TAIL else 0
                if state.in_sync == (node_id,) and not set(state.eligible) - {node_id}:
                    # Nobody else had it: it is lost.
                    left = [held[each] for each in state.last_known if each != node_id] if loss is Loss.ALL else []
                    self.committed[index] = min(left) if left else held[node_id]
        self.make(finished(broker_up(self.cluster, self.rules_of, node_id, self.epochs[node_id], NODE, loss=loss)))
        assert node_id in self.cluster.usable

    @rule(node_id=st.sampled_from(BROKERS))
    def take_over(self, node_id: int) -> None:
        """Another controller looks at everything, and finds nothing to do for those that were there."""
        broker = self.cluster.brokers[node_id]
        if broker.is_alive and not broker.is_leaving:
            changes = finished(broker_up(self.cluster, self.rules_of, node_id, broker.epoch, NODE, is_first=True))
            self.make(changes)
            assert not changes

    @rule(node_id=st.sampled_from(BROKERS), indexes=st.sets(st.integers(0, len(PARTITIONS) - 1)))
    def fail_disk(self, node_id: int, indexes: set[int]) -> None:
        broker = self.cluster.brokers[node_id]
        if broker.is_alive:
            own = {(bytes(16), index) for index in indexes if node_id in PARTITIONS[index]}
            self.make(finished(replicas_failed(self.cluster, self.rules_of, node_id, broker.failed | own)))

    @rule()
    def balance(self) -> None:
        elected = imbalanced(self.cluster, 0)
        if elected:
            self.make([stamped(self.cluster, elected)])

    @invariant()
    def sound(self) -> None:
        for index, state in enumerate(self.cluster.states["t"]):
            replicas, least = PARTITIONS[index], self.rules_of("t", index).least
            assert state.in_sync or (state.last_known and state.leader_id == NOBODY)
            assert {*state.in_sync, *state.eligible, *state.last_known} <= {*replicas}
            assert not set(state.in_sync) & set(state.eligible)
            assert not state.eligible or len(state.in_sync) < least
            if state.leader_id == NOBODY:
                usable = {*self.cluster.usable} - self.cluster.failed_at(bytes(16), index)
                assert not {*state.in_sync, *state.eligible} & usable
            else:
                assert state.leader_id not in self.cluster.failed_at(bytes(16), index)
                assert self.broker(state.leader_id)
                assert state.leader_id in state.in_sync


TestElections = Elections.TestCase
TestElections.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_thousands_of_partitions_are_looked_at_in_steps() -> None:
    known = cluster([[1, 2, 3]])
    for number in range(1000):
        replicas = [[1, 2, 3]]
        node = TopicNode(number.to_bytes(16, "big"), replicas)
        known.replay(NewTopic(f"t{number}", node, {}, first_states(replicas)))
    for steps in (
        broker_down(known, rules_in(known), 1),
        broker_leaving(known, rules_in(known), 1),
        broker_up(known, rules_in(known), 1, 101, NODE),
    ):
        assert sum(1 for _ in steps) == 1001 // A_STEP


# Other rules


LEAST = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


@pytest.mark.parametrize(
    ("change", "eligible"),
    [
        (ChangedTopicConfig("t", {LEAST: "1"}), ()),
        (ChangedTopicConfig("t", {LEAST: "2", "retention.ms": "5"}), (2, 3)),
        (ChangedTopicConfig("t", {LEAST: "3"}), (2, 3)),
        (ChangedTopicConfig("t", {}), ()),
        (ChangedBrokerConfig(None, {LEAST: "3"}), (2, 3)),  # the topic has its own
    ],
)
def test_who_left_is_eligible_no_more_when_its_leader_may_commit_without(change: Change, eligible: object) -> None:
    known = cluster([(1, 2, 3)], min_insync_replicas="2")
    known.states["t"] = [PartitionState(1, 5, (1,), eligible=(2, 3))]
    for each in (2, 3):
        known.replay(BrokerDown(each))
    for decided in [change, *finished(rules_changed(known, Settings(), [change]))]:
        known.replay(decided)
    assert known.states["t"][0].eligible == eligible
    assert known.states["t"][0].leader_epoch == 5


@pytest.mark.parametrize(
    "change", [ChangedTopicConfig("t", {UNCLEAN: "true"}), ChangedBrokerConfig(None, {UNCLEAN: "true"})]
)
def test_somebody_leads_when_that_is_allowed_though_it_lacks_records(change: Change) -> None:
    known = cluster([(1, 2, 3)])
    known.states["t"] = [PartitionState(NOBODY, 5, (1,))]
    known.replay(BrokerDown(1))
    [decided] = finished(rules_changed(known, Settings(), [change]))
    assert isinstance(decided, ChangedStates)
    assert decided.states["t"][0][:3] == (2, 6, (2,))


def test_who_is_told_of_all_that_changed_learns_of_settings_before_the_states_that_were_decided_under_them() -> None:
    """A leader that commits alone for a moment longer would lose that to one who is eligible by the new setting."""
    before, after = cluster([(1, 2)]), cluster([(1, 2)])
    after.replay(ChangedTopicConfig("t", {LEAST: "2"}))
    after.replay(ChangedStates({"t": {0: PartitionState(1, 5, (1,), eligible=(2,))}}))
    kinds = [type(change) for change in changes_between(before, after)]
    assert kinds == [ChangedTopicConfig, ChangedStates]
