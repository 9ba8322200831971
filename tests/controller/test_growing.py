"""How the controller has a topic grow in order, step by step."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from ottla.controller.changes import BrokerUp, Change, ChangedReplicas, ChangedStates, NewPartitions
from ottla.controller.cluster import Cluster
from ottla.controller.elections import PREFERRED, UNCLEAN, decide_elections
from ottla.controller.feed import changes_between, changes_of, decode_changes, encode_changes
from ottla.controller.growing import (
    LIFTED,
    GrowthReports,
    InOrder,
    Report,
    draining,
    fencing,
    is_current,
    lowered,
    opened,
)
from ottla.controller.layout import NOBODY, BrokerNode, decode_topic, encode_topic
from ottla.controller.leaders import broker_down, broker_up, imbalanced, replicas_failed, rules_in
from ottla.controller.steps import finished
from ottla.controller.topic_names import OFFSETS_TOPIC
from ottla.controller.topics import Defaults, decide_creations, decide_expansions, still_possible
from ottla.log.topic_defaults import KAFKA_DEFAULTS
from ottla.records.growth import Phase
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.create_partitions import CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic

IN_ORDER = InOrder("murmur2", 100)


def cluster_with(partitions: int, factor: int = 2, names: tuple[str, ...] = ("t",)) -> Cluster:
    cluster = Cluster()
    for node_id in (1, 2, 3):
        cluster.replay(BrokerUp(node_id, node_id, BrokerNode({})))
    asked = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, assignments=[], configs=[])
        for name in names
    ]
    ids = itertools.count(1)
    made = decide_creations(cluster, asked, Defaults(KAFKA_DEFAULTS), Random(1), lambda: next(ids).to_bytes(16))
    replay(cluster, *made.values())
    return cluster


def replay(cluster: Cluster, *changes: object) -> None:
    for change in changes:
        assert not isinstance(change, ApiError), change.message
        cluster.replay(change)  # type: ignore[arg-type]


def expand(cluster: Cluster, count: int, in_order: InOrder | None = IN_ORDER) -> NewPartitions | ApiError:
    asked = CreatePartitionsTopic(name="t", count=count, assignments=None)
    wanted = {} if in_order is None else {"t": in_order}
    return decide_expansions(cluster, [asked], Random(1), wanted)["t"]


def grow(cluster: Cluster, count: int, fences: dict[int, int]) -> None:
    replay(cluster, expand(cluster, count))
    replay(cluster, *draining(cluster.topics["t"], "t"))
    replay(cluster, *fencing(cluster.topics["t"], "t"))
    replay(cluster, *opened(cluster, rules_in(cluster), "t", fences))


def leaders(cluster: Cluster) -> list[int]:
    return [state.leader_id for state in cluster.states["t"]]


def test_all_coordinators_of_groups_are_there_when_a_topic_begins_to_grow() -> None:
    """Each notes which groups know the topic from before."""
    cluster = cluster_with(2, names=("t", OFFSETS_TOPIC))
    state = cluster.states[OFFSETS_TOPIC][1]
    replay(cluster, ChangedStates({OFFSETS_TOPIC: {1: state._replace(leader_id=NOBODY)}}))
    refusal = expand(cluster, 4)
    assert isinstance(refusal, ApiError)
    assert refusal.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert OFFSETS_TOPIC in str(refusal.message)
    replay(cluster, ChangedStates({OFFSETS_TOPIC: {1: state}}))
    assert isinstance(expand(cluster, 4), NewPartitions)


def test_new_partitions_have_no_leader_before_the_fences_are_known() -> None:
    cluster = cluster_with(2)
    replay(cluster, expand(cluster, 4))
    assert leaders(cluster)[2:] == [NOBODY, NOBODY]
    assert cluster.topics["t"].growths[-1].phase is Phase.PREPARING
    replay(cluster, *draining(cluster.topics["t"], "t"))
    rules = rules_in(cluster)
    for node_id in (1, 2, 3):  # whatever happens meanwhile
        replay(cluster, *finished(broker_down(cluster, rules, node_id)))
        replay(cluster, *finished(broker_up(cluster, rules, node_id, 10 + node_id, BrokerNode({}))))
    for kind in (PREFERRED, UNCLEAN):
        answers, changes = decide_elections(cluster, rules, kind, [("t", [2, 3])])
        assert not changes
        assert all(answer.refusal is not None for answer in answers)
    assert not imbalanced(cluster, 0).get("t", {}).keys() & {2, 3}
    assert leaders(cluster)[2:] == [NOBODY, NOBODY]
    replay(cluster, *fencing(cluster.topics["t"], "t"))
    replay(cluster, *opened(cluster, rules, "t", {0: 7, 1: LIFTED}))
    assert NOBODY not in leaders(cluster)
    assert cluster.topics["t"].growths[-1].fences == {0: 7}


@pytest.mark.parametrize(
    ("count", "in_order", "code", "says"),
    [
        (3, IN_ORDER, ErrorCode.INVALID_PARTITIONS, "a multiple of that, not to 3"),
        (2, IN_ORDER, ErrorCode.INVALID_PARTITIONS, "already has 2"),
        (10_004, IN_ORDER, ErrorCode.INVALID_PARTITIONS, "One request makes 10000 partitions at most."),
        (4, InOrder("sha1", 0), ErrorCode.INVALID_REQUEST, "murmur2 or crc32"),
        (4, InOrder("murmur2", -1), ErrorCode.INVALID_REQUEST, "no time"),
    ],
)
def test_refusals(count: int, in_order: InOrder, code: ErrorCode, says: str) -> None:
    refusal = expand(cluster_with(2), count, in_order)
    assert isinstance(refusal, ApiError)
    assert refusal.code is code
    assert says in (refusal.message or "")


def test_a_topic_that_grows_does_not_grow_otherwise() -> None:
    cluster = cluster_with(2)
    replay(cluster, expand(cluster, 4))
    for in_order in (IN_ORDER, None):
        refusal = expand(cluster, 8, in_order)
        assert isinstance(refusal, ApiError)
        assert refusal.code is ErrorCode.INVALID_REQUEST


def test_a_topic_that_nobody_leads_does_not_grow() -> None:
    cluster = cluster_with(2, factor=1)
    lost = leaders(cluster)[0]
    replay(cluster, *finished(broker_down(cluster, rules_in(cluster), lost)))
    refusal = expand(cluster, 4)
    assert isinstance(refusal, ApiError)
    assert refusal.code is ErrorCode.LEADER_NOT_AVAILABLE


def test_a_topic_does_not_grow_while_a_broker_is_away_that_could_tell_the_old_number() -> None:
    cluster = cluster_with(2, factor=2)
    [away] = {1, 2, 3} - set(leaders(cluster))
    replay(cluster, *finished(broker_down(cluster, rules_in(cluster), away)))
    refusal = expand(cluster, 4)
    assert isinstance(refusal, ApiError)
    assert refusal.code is ErrorCode.INVALID_REQUEST
    assert f"missing: {away}" in (refusal.message or "")
    assert isinstance(expand(cluster, 4, in_order=None), NewPartitions)


def test_partitions_that_cannot_be_made_are_taken_back() -> None:
    cluster = cluster_with(2)
    grow(cluster, 4, {0: 5, 1: 6})
    before = cluster.topics["t"]
    decided = expand(cluster, 8)
    assert isinstance(decided, NewPartitions)
    replay(cluster, decided)
    replay(cluster, *still_possible(cluster, [decided.undone()]))
    assert cluster.topics["t"] == before


def test_a_disk_may_fail_under_partitions_that_are_taken_back() -> None:
    cluster = cluster_with(2)
    decided = expand(cluster, 4)
    assert isinstance(decided, NewPartitions)
    replay(cluster, decided)
    holder, failed = decided.node.replicas[3][0], [(decided.node.topic_id, 3)]
    replay(cluster, *finished(replicas_failed(cluster, rules_in(cluster), holder, failed)))
    assert cluster.failing
    replay(cluster, *still_possible(cluster, [decided.undone()]))
    assert not cluster.failing
    replay(cluster, *finished(replicas_failed(cluster, rules_in(cluster), holder, failed)))  # it tells late
    replay(cluster, ChangedReplicas("t", cluster.topics["t"]))
    assert not cluster.failing


def test_all_leaders_have_to_tell() -> None:
    cluster = cluster_with(2)
    replay(cluster, expand(cluster, 4))
    node = cluster.topics["t"]
    told = GrowthReports(node.topic_id, node.growths[-1], 0.0, 0)
    told.take(Report("t", 0, 0, is_drained=True))
    told.take(Report("t", 2, 0, is_drained=True))  # it is no parent
    assert not told.are_drained
    told.take(Report("t", 1, 0, is_drained=True))
    assert told.are_drained
    told.take(Report("t", 0, 0, is_drained=False))  # something came again
    assert not told.are_drained
    told.take(Report("t", 0, 0, fence=3))
    assert not told.has_fences
    told.take(Report("t", 1, 0, fence=LIFTED))
    assert told.has_fences
    assert is_current(cluster, Report("t", 0, cluster.states["t"][0].leader_epoch))
    assert not is_current(cluster, Report("t", 0, cluster.states["t"][0].leader_epoch - 1))
    assert not is_current(cluster, Report("t", 9, 0))


def test_fences_are_lowered_each_for_itself() -> None:
    cluster = cluster_with(2)
    grow(cluster, 4, {0: 5, 1: 6})
    grow(cluster, 8, {0: 50, 1: 60, 2: 7, 3: LIFTED})

    def fences(*reports: Report) -> list[dict[int, int]]:
        replay(cluster, *lowered(cluster.topics["t"], "t", reports))
        return [dict(growth.fences) for growth in cluster.topics["t"].growths]

    assert fences(Report("t", 0, 0)) == [{0: 5, 1: 6}, {0: 50, 1: 60, 2: 7}]
    assert fences(Report("t", 0, 0, lowered={2: LIFTED, 4: 40})) == [{1: 6}, {0: 40, 1: 60, 2: 7}]
    assert fences(Report("t", 0, 0, lowered={4: 45, 2: 3})) == [{1: 6}, {0: 40, 1: 60, 2: 7}]  # never higher
    assert fences(Report("t", 1, 0, lowered={2: 2}), Report("t", 2, 0, lowered={4: LIFTED})) == [
        {1: 2},
        {0: 40, 1: 60},
    ]


def test_every_step_is_remembered_and_told() -> None:
    cluster, follower = cluster_with(2), Cluster()
    steps: list[list[Change]] = []

    def note(*changes: object) -> None:
        replay(cluster, *changes)
        steps.append(list(changes))  # type: ignore[arg-type]

    for change in changes_of(cluster):
        follower.replay(change)
    note(expand(cluster, 4))
    note(*draining(cluster.topics["t"], "t"))
    note(*fencing(cluster.topics["t"], "t"))
    note(*opened(cluster, rules_in(cluster), "t", {0: 1, 1: 2}))
    for step in steps:
        for told in decode_changes(encode_changes(step)):
            follower.replay(told)
        whole = Cluster()
        for change in decode_changes(encode_changes(changes_of(follower))):
            whole.replay(change)
        assert whole.topics == follower.topics
        node = follower.topics["t"]
        assert decode_topic(encode_topic(node)) == node
    assert follower.topics == cluster.topics
    assert follower.states == cluster.states
    late = cluster_with(2)
    for change in changes_between(late, cluster):
        late.replay(change)
    assert late.topics == cluster.topics
