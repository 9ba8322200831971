"""Who leads each partition and who is in sync, when brokers come, go or are about to. Decisions without I/O.

A leader is always there, and in sync or eligible, unless an unclean election is allowed. The last member of an in-sync
set stays in it when it goes: nobody else may be known to have all that is committed. Eligible (KIP-966) is who left
the set while it had fewer members than `min.insync.replicas` asks for: nothing is committed then, so they have it all.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.controller.changes import (
    BrokerDown,
    BrokerLeaving,
    BrokerUp,
    Change,
    ChangedBrokerConfig,
    ChangedStates,
    ChangedTopicConfig,
    FailedReplicas,
)
from ottla.controller.cluster import Cluster
from ottla.controller.layout import NOBODY, BrokerNode, PartitionState
from ottla.controller.steps import A_STEP, InSteps, parts
from ottla.log.loss import Loss
from ottla.wire.errors import ApiError, ErrorCode

UNCLEAN = "unclean.leader.election.enable"
MIN_IN_SYNC = "min.insync.replicas"


class Rules(NamedTuple):
    """What is asked of the replicas of a partition."""

    replicas: Sequence[int]
    min_in_sync: int = 1
    is_unclean: bool = False  # whether somebody who lacks committed records may lead
    is_closed: bool = False  # whether nobody may lead it yet, since its topic grows in order
    failed: Collection[int] = ()  # replicas whose disk failed: they are as good as gone

    @property
    def least(self) -> int:
        """A topic with fewer replicas than it wants in sync is content with those it has, as with Kafka."""
        return min(self.min_in_sync, len(self.replicas))


class Settings(NamedTuple):
    """What holds where neither the topic nor all brokers have a setting of their own."""

    min_in_sync: int = 1
    is_unclean: bool = False


BY_DEFAULT = Settings()
RulesOf = Callable[[str, int], Rules]


def rules_in(cluster: Cluster, settings: Settings = BY_DEFAULT) -> RulesOf:
    def rules_of(name: str, index: int) -> Rules:
        least, unclean = cluster.topic_setting(name, MIN_IN_SYNC), cluster.topic_setting(name, UNCLEAN)
        topic = cluster.topics[name]
        return Rules(
            topic.replicas[index],
            settings.min_in_sync if least is None else int(least),
            settings.is_unclean if unclean is None else unclean.strip().lower() == "true",
            topic.is_closed(index),
            cluster.failed_at(topic.topic_id, index) if cluster.failing else (),
        )

    return rules_of


# One partition


def settled(
    state: PartitionState,
    rules: Rules,
    live: Collection[int],
    usable: Collection[int] | None = None,
    *,
    restarted: int | None = None,
    loss: Loss = Loss.NOTHING,
) -> PartitionState:
    """The state with these brokers; the same one if nothing changes.

    `live` may go on leading, and those of them that are `usable` may begin to; without it, all may. `restarted` has
    started anew, and must not go on in the epoch that it led in. `loss`: what it may lack of what it had.
    """
    usable = live if usable is None else usable
    if rules.failed:
        live, usable = set(live).difference(rules.failed), set(usable).difference(rules.failed)
    in_sync, eligible, last_known, leader_id = state.in_sync, state.eligible, state.last_known, state.leader_id
    if loss and restarted is not None:
        in_sync, eligible, last_known = _after_loss(state, rules, restarted, loss)
    stays = leader_id in live and leader_id in in_sync and leader_id != restarted
    staying = tuple(each for each in in_sync if each in usable or (stays and each == leader_id)) or in_sync
    eligible = _eligible(staying, (*eligible, *in_sync), rules)
    after = state._replace(in_sync=staying, eligible=eligible, last_known=last_known)
    if not stays:
        after = _elected(after, rules, usable)
    return _changed(state, after, is_elected=leader_id == restarted)


def _after_loss(
    state: PartitionState, rules: Rules, node_id: int, loss: Loss
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Who is in sync, eligible and last known without a broker that may lack records.

    One that lacks no more than the last of them stays in sync where nobody else is. Where it lacks all, those that
    were in sync, too, and lack no more than the last records, have the most that is left; without any of these nobody
    may lead but by an unclean election, or the others would throw away what they have.
    """
    in_sync, eligible, last_known = (
        tuple(replica for replica in replicas if replica != node_id)
        for replicas in (state.in_sync, state.eligible, state.last_known)
    )
    if loss is Loss.TAIL and node_id in (*state.in_sync, *state.eligible, *state.last_known):
        last_known = (*last_known, node_id)
    if in_sync:
        return in_sync, eligible, last_known
    if eligible:
        return eligible, (), last_known
    if loss is Loss.ALL and node_id in state.in_sync and len(rules.replicas) > 1:
        if last_known:
            return last_known, (), ()
        return (), (), tuple(replica for replica in rules.replicas if replica != node_id)
    return state.in_sync if state.in_sync or last_known else (node_id,), (), last_known  # all have lost all


def _eligible(in_sync: Collection[int], candidates: Iterable[int], rules: Rules) -> tuple[int, ...]:
    if len(in_sync) >= rules.least:
        return ()
    return tuple(dict.fromkeys(each for each in candidates if each not in in_sync and each in rules.replicas))


def _elected(
    state: PartitionState, rules: Rules, usable: Collection[int], *, is_unclean: bool | None = None
) -> PartitionState:
    """With another leader, or with nobody."""
    usable = set(usable).difference(rules.failed)
    candidates = [] if rules.is_closed else [replica for replica in rules.replicas if replica in usable]
    for replica in candidates:
        if replica in state.in_sync:
            return state._replace(leader_id=replica)
    for replica in candidates:
        if replica in state.eligible:
            eligible = _eligible((replica,), (*state.in_sync, *state.eligible), rules)
            return state._replace(leader_id=replica, in_sync=(replica,), eligible=eligible)
    if candidates and (rules.is_unclean if is_unclean is None else is_unclean):
        best = next((replica for replica in candidates if replica in state.last_known), candidates[0])
        return state._replace(leader_id=best, in_sync=(best,), eligible=())
    return state._replace(leader_id=NOBODY)


def _changed(before: PartitionState, after: PartitionState, *, is_elected: bool = False) -> PartitionState:
    """With the epochs that a change has; a partition that nobody leads is not left by its leader again."""
    if after.last_known and after.leader_id != NOBODY and len(after.in_sync) > 1:
        after = after._replace(last_known=())  # somebody has all again, beside the one that leads
    is_elected = is_elected or after.leader_id != before.leader_id
    if after == before and not is_elected:
        return before
    return after._replace(leader_epoch=before.leader_epoch + is_elected, partition_epoch=before.partition_epoch + 1)


# All partitions


def _settle(
    cluster: Cluster,
    rules_of: RulesOf,
    live: Collection[int],
    usable: Collection[int],
    concerned: int | None = None,
    *,
    restarted: int | None = None,
    loss: Loss = Loss.NOTHING,
    rotten: Collection[tuple[bytes, int]] = (),
    names: Iterable[str] | None = None,
) -> InSteps[list[Change]]:
    """What changes with other brokers or rules; `concerned`: only where this one is a replica, `names`: of topics.

    `loss`: what all partitions of `restarted` may lack; `rotten`: those that may lack some in any case.
    """
    changed: dict[str, dict[int, PartitionState]] = {}
    looked = 0
    for name in cluster.topics if names is None else names:
        topic, states = cluster.topics[name], cluster.states[name]
        looked += len(states)
        if looked >= A_STEP:
            looked = 0
            yield
        for index, replicas in enumerate(topic.replicas):
            if concerned is not None and concerned not in replicas:
                continue
            before, rules = states[index], rules_of(name, index)
            if restarted in rules.failed:  # it has another try
                rules = rules._replace(failed={*rules.failed} - {restarted})
            lost = max(loss, Loss.TAIL if (topic.topic_id, index) in rotten else Loss.NOTHING)
            after = settled(before, rules, live, usable, restarted=restarted, loss=lost)
            if after is not before:
                changed.setdefault(name, {})[index] = after
    return [stamped(cluster, changed)] if changed else []


def stamped(cluster: Cluster, states: Mapping[str, Mapping[int, PartitionState]]) -> ChangedStates:
    """States that the controller of this epoch has decided on."""
    epoch = cluster.controller_epoch
    return ChangedStates(
        {
            name: {index: state._replace(controller_epoch=epoch) for index, state in by_index.items()}
            for name, by_index in states.items()
        }
    )


def broker_up(
    cluster: Cluster,
    rules_of: RulesOf,
    node_id: int,
    epoch: int,
    node: BrokerNode,
    *,
    loss: Loss = Loss.NOTHING,
    rotten: Collection[tuple[bytes, int]] = (),
    is_first: bool = False,
) -> InSteps[list[Change]]:
    """A broker has opened its data. `is_first`: nobody has looked at any partition in this controller's time.

    `loss`: what it may lack of all its partitions. `rotten`: the partitions in which some has rotted there. That it is
    there comes last: until then it has no roles, and tells of its loss again, if only some of this was made true.
    """
    known = cluster.brokers.get(node_id)
    is_same = known is not None and known.epoch == epoch  # it has been there all the time
    is_known = known is not None and known.is_alive and is_same
    if is_known and not is_first:
        return []
    states = yield from _settle(
        cluster,
        rules_of,
        {*cluster.live, node_id},
        {*cluster.usable, node_id},
        None if is_first else node_id,
        restarted=None if is_same else node_id,
        loss=Loss.NOTHING if is_same else loss,
        rotten=() if is_same else rotten,
    )
    return states if is_known else [*states, BrokerUp(node_id, epoch, node)]


def broker_down(
    cluster: Cluster, rules_of: RulesOf, node_id: int, *, is_registered: bool = False
) -> InSteps[list[Change]]:
    """A broker is gone. `is_registered`: its node in the store is still there."""
    if not cluster.is_alive(node_id):
        return []
    live, usable = set(cluster.live) - {node_id}, set(cluster.usable) - {node_id}
    states = yield from _settle(cluster, rules_of, live, usable, node_id)
    return [BrokerDown(node_id, is_registered), *states]


def broker_leaving(cluster: Cluster, rules_of: RulesOf, node_id: int) -> InSteps[list[Change]]:
    """A broker wants to stop: it leads nothing more that somebody else can lead, and holds up no in-sync set."""
    broker = cluster.brokers.get(node_id)
    if broker is None or not broker.is_alive:
        return []
    usable = set(cluster.usable) - {node_id}
    changed: dict[str, dict[int, PartitionState]] = {}
    looked = 0
    for name, topic in cluster.topics.items():
        looked += len(topic.replicas)
        if looked >= A_STEP:
            looked = 0
            yield
        for index, replicas in enumerate(topic.replicas):
            before = cluster.states[name][index]
            if node_id not in replicas or node_id not in before.in_sync:
                continue
            after = settled(before, rules_of(name, index)._replace(is_unclean=False), usable)
            if after is not before and after.leader_id != NOBODY:
                changed.setdefault(name, {})[index] = after
    leaving: list[Change] = [] if broker.is_leaving else [BrokerLeaving(node_id)]
    return leaving + ([stamped(cluster, changed)] if changed else [])


def replicas_failed(
    cluster: Cluster, rules_of: RulesOf, node_id: int, failed: Collection[tuple[bytes, int]]
) -> InSteps[list[Change]]:
    """A broker cannot use some of its replicas any more, and tells of all of them: others lead what it led."""
    before, after = cluster.brokers[node_id].failed, frozenset(failed)
    if before == after:
        return []
    live, usable = set(cluster.live), set(cluster.usable)
    changed: dict[str, dict[int, PartitionState]] = {}
    for part in parts(after - before):
        yield
        for topic_id, index in part:
            name = cluster.names.get(topic_id)
            state = None if name is None else cluster.state(name, index)
            if name is not None and state is not None:
                rules = rules_of(name, index)
                settled_state = settled(state, rules._replace(failed={*rules.failed, node_id}), live, usable)
                if settled_state is not state:
                    changed.setdefault(name, {})[index] = settled_state
    return [FailedReplicas(node_id, after), *([stamped(cluster, changed)] if changed else [])]


def rules_changed(cluster: Cluster, settings: Settings, changes: Iterable[Change]) -> InSteps[list[Change]]:
    """What follows from other settings of topics, or of all brokers; it goes to the store with them.

    A leader that may commit with fewer replicas from now on has more than those who left before: they are eligible no
    more, also if the setting is soon as it was. Where an unclean election is allowed now, somebody leads.
    """
    after = copy.copy(cluster)
    after.topic_configs, after.broker_configs = dict(cluster.topic_configs), dict(cluster.broker_configs)
    names: Iterable[str] = []
    for change in changes:
        if isinstance(change, ChangedTopicConfig):
            after.topic_configs[change.name] = change.texts
            names = [*names, change.name]
        elif isinstance(change, ChangedBrokerConfig) and change.node_id is None:
            after.broker_configs[None] = change.texts
            names = cluster.topics
    differing = [
        name
        for name in names
        if any(cluster.topic_setting(name, key) != after.topic_setting(name, key) for key in (MIN_IN_SYNC, UNCLEAN))
    ]
    yield
    live, usable = set(cluster.live), set(cluster.usable)
    return (yield from _settle(after, rules_in(after, settings), live, usable, names=differing))


def led_by(cluster: Cluster, node_id: int) -> Iterator[tuple[str, int]]:
    """The partitions that a broker leads."""
    for name, states in cluster.states.items():
        for index, state in enumerate(states):
            if state.leader_id == node_id:
                yield name, index


# Elections that somebody asks for


def preferred_election(state: PartitionState, rules: Rules, usable: Collection[int]) -> PartitionState:
    """Have the first replica lead; ApiError where it does, or cannot."""
    preferred = rules.replicas[0]
    if state.leader_id == preferred:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED)
    is_unfit = preferred in rules.failed or rules.is_closed
    if preferred not in usable or preferred not in state.in_sync or is_unfit:
        raise ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    return _changed(state, state._replace(leader_id=preferred))


def unclean_election(state: PartitionState, rules: Rules, usable: Collection[int]) -> PartitionState:
    """Have anybody lead, even with records lost; ApiError where somebody does, or nobody is there."""
    if state.leader_id in usable:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED)
    after = _elected(state, rules, usable, is_unclean=True)
    if after.leader_id == NOBODY:
        raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    return _changed(state, after)


def imbalanced(cluster: Cluster, percentage: int) -> dict[str, dict[int, PartitionState]]:
    """Preferred leaders that can lead again, of brokers that lead too few of the partitions that they should."""
    usable = set(cluster.usable)
    preferring: dict[int, int] = {}
    missed: dict[int, list[tuple[str, int]]] = {}
    for name, topic in cluster.topics.items():
        for index, replicas in enumerate(topic.replicas):
            preferred = replicas[0]
            if topic.is_closed(index):
                continue
            preferring[preferred] = preferring.get(preferred, 0) + 1
            if preferred in usable and cluster.states[name][index].leader_id != preferred:
                missed.setdefault(preferred, []).append((name, index))
    elected: dict[str, dict[int, PartitionState]] = {}
    for node_id, partitions in missed.items():
        if len(partitions) * 100 <= percentage * preferring[node_id]:
            continue
        for name, index in partitions:
            state = cluster.states[name][index]
            is_fit = node_id in state.in_sync and node_id not in cluster.failed_at(cluster.topics[name].topic_id, index)
            if is_fit and index not in cluster.topics[name].adding:
                elected.setdefault(name, {})[index] = _changed(state, state._replace(leader_id=node_id))
    return elected


# The in-sync set that a leader proposes


class Proposal(NamedTuple):
    """What a leader asks for, and what it knows."""

    node_id: int
    leader_epoch: int
    partition_epoch: int
    in_sync: Sequence[tuple[int, int]]  # each with the epoch of its registration; -1: not known


def altered(cluster: Cluster, state: PartitionState, rules: Rules, proposal: Proposal) -> PartitionState:
    """The state with another in-sync set; ApiError in Kafka's codes."""
    if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch:
        raise ApiError(ErrorCode.NOT_CONTROLLER)  # of what it knows, this one knows nothing
    if proposal.leader_epoch < state.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
    if proposal.node_id != state.leader_id:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if proposal.partition_epoch < state.partition_epoch:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION)
    members = dict(proposal.in_sync)
    if (
        len(members) < len(proposal.in_sync)
        or state.leader_id not in members
        or not members.keys() <= {*rules.replicas}
    ):
        raise ApiError(ErrorCode.INVALID_REQUEST)
    for member, epoch in members.items():
        broker = cluster.brokers.get(member)
        is_there = broker is not None and broker.is_alive and epoch in (-1, broker.epoch)
        is_fit = is_there and member not in rules.failed
        if broker is None or not is_fit or (broker.is_leaving and member != state.leader_id):
            raise ApiError(ErrorCode.INELIGIBLE_REPLICA)
    in_sync = tuple(replica for replica in rules.replicas if replica in members)
    eligible = _eligible(in_sync, (*state.eligible, *state.in_sync), rules)
    return _changed(state, state._replace(in_sync=in_sync, eligible=eligible))
