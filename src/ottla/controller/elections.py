"""Elections that somebody asks for: who shall lead. Decisions without I/O, in Kafka's codes and words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ottla.controller.changes import Change
from ottla.controller.cluster import Cluster
from ottla.controller.layout import PartitionState
from ottla.controller.leaders import RulesOf, preferred_election, stamped, unclean_election
from ottla.wire.errors import ApiError, ErrorCode

PREFERRED, UNCLEAN = 0, 1
NOT_NEEDED = "Leader election not needed for topic partition."
MESSAGES = {
    ErrorCode.ELECTION_NOT_NEEDED: NOT_NEEDED,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}


class Elected(NamedTuple):
    """What becomes of a partition: None where it has another leader now."""

    name: str
    partition: int
    refusal: ApiError | None


def decide_elections(
    cluster: Cluster,
    rules_of: RulesOf,
    kind: int,
    asked: Iterable[tuple[str, Sequence[int]]],
    *,
    only_needed: bool = False,
) -> tuple[list[Elected], list[Change]]:
    """`only_needed`: partitions that need no election are left out of the answer."""
    answers: list[Elected] = []
    states: dict[str, dict[int, PartitionState]] = {}
    usable = cluster.usable
    for name, indexes in asked:
        for index in indexes:
            try:
                state = _elect(cluster, rules_of, usable, kind, name, index)
            except ApiError as refusal:
                if not only_needed or refusal.code is not ErrorCode.ELECTION_NOT_NEEDED:
                    told = ApiError(refusal.code, refusal.message or MESSAGES.get(refusal.code))
                    answers.append(Elected(name, index, told))
            else:
                states.setdefault(name, {})[index] = state
                answers.append(Elected(name, index, None))
    return answers, [stamped(cluster, states)] if states else []


def _elect(
    cluster: Cluster, rules_of: RulesOf, usable: Collection[int], kind: int, name: str, index: int
) -> PartitionState:
    if name not in cluster.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    state = cluster.state(name, index)
    if state is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    elect = preferred_election if kind == PREFERRED else unclean_election
    return elect(state, rules_of(name, index), usable)
