"""Requests that create, expand or delete topics, a part of them at a time.

Each part is decided on, kept and applied for itself. What was done before a request is given up stays done, and what
was not begun is not. A topic is never there in part.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from ottla.broker.config.layers import BrokerSettings
from ottla.broker.controller.controller import Controller
from ottla.broker.loop.slices import Waiting, parts_of
from ottla.controller.changes import Deletion, NewPartitions, NewTopic
from ottla.controller.growing import NOT_IN_ORDER, InOrder
from ottla.controller.topics import (
    Defaults,
    DeletionDecision,
    decide_creations,
    decide_deletions,
    decide_expansions,
    refuse_creations,
    refuse_expansions,
)
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.create_partitions import CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic
from ottla.wire.messages.delete_topics import DeleteTopicState
from ottla.wire.uuids import new_uuid

TOPICS_A_PART = 50
PARTITIONS_A_PART = 500

N = TypeVar("N", NewTopic, NewPartitions)
Charge = Callable[[int], None]
"""Counts partitions that come or go against somebody's quota; ApiError where that is used up."""


def _free(_partitions: int) -> None:
    pass


class TopicRequests:
    def __init__(self, controller: Callable[[], Controller], settings: BrokerSettings) -> None:
        """`controller`: of this broker, which must be the one that decides."""
        self._find_controller = controller
        self._settings = settings
        self._random = random.Random()
        self.new_topic_id = new_uuid

    @property
    def _controller(self) -> Controller:
        return self._find_controller()

    def _defaults(self) -> Defaults:
        config = self._settings.config
        return Defaults(self._settings.topic_defaults, config.num_partitions, config.default_replication_factor)

    # Creating

    def create(
        self, asked: Sequence[CreatableTopic], *, validate_only: bool = False, charge: Charge = _free
    ) -> Generator[Waiting | None, None, dict[str, NewTopic | ApiError]]:
        """What becomes of each name."""
        refused = refuse_creations(asked, self._defaults())
        decisions: dict[str, NewTopic | ApiError] = {}
        yield None
        for part in _creation_parts([topic for topic in asked if topic.name not in refused]):
            decisions.update((yield from self._create_some(part, validate_only, charge)))
        decisions.update(refused)
        return decisions

    def _create_some(
        self, asked: Sequence[CreatableTopic], validate_only: bool, charge: Charge
    ) -> Generator[Waiting, None, dict[str, NewTopic | ApiError]]:
        def decide() -> dict[str, NewTopic | ApiError]:
            cluster = self._controller.cluster
            return decide_creations(cluster, asked, self._defaults(), self._random, self.new_topic_id)

        return self._decided(decide, lambda new: len(new.node.replicas), validate_only, charge)

    # Expanding

    def expand(
        self,
        asked: Sequence[CreatePartitionsTopic],
        *,
        validate_only: bool = False,
        charge: Charge = _free,
        in_order: Mapping[str, InOrder] = NOT_IN_ORDER,
    ) -> Generator[Waiting | None, None, dict[str, NewPartitions | ApiError]]:
        """What becomes of each topic. `in_order`: those that keep the order of every key."""
        refused = refuse_expansions(self._controller.cluster, asked, in_order)
        decisions: dict[str, NewPartitions | ApiError] = dict(refused)
        yield None
        for part in parts_of([topic for topic in asked if topic.name not in refused], TOPICS_A_PART):
            decisions.update((yield from self._expand_some(part, validate_only, charge, in_order)))
        return decisions

    def _expand_some(
        self,
        asked: Sequence[CreatePartitionsTopic],
        validate_only: bool,
        charge: Charge,
        in_order: Mapping[str, InOrder],
    ) -> Generator[Waiting, None, dict[str, NewPartitions | ApiError]]:
        def decide() -> dict[str, NewPartitions | ApiError]:
            return decide_expansions(self._controller.cluster, asked, self._random, in_order)

        return self._decided(decide, lambda new: len(new.replicas), validate_only, charge)

    def _decided(
        self,
        decide: Callable[[], dict[str, N | ApiError]],
        count: Callable[[N], int],
        validate_only: bool,
        charge: Charge,
    ) -> Generator[Waiting, None, dict[str, N | ApiError]]:
        """What becomes of each name when it is decided and kept. `count`: the partitions that are to be paid for."""
        decisions: dict[str, N | ApiError] = {}

        def charged() -> list[N]:
            decisions.update(decide())
            for name, new in list(decisions.items()):
                if not isinstance(new, ApiError):
                    try:
                        charge(count(new))
                    except ApiError as refusal:
                        decisions[name] = refusal.bare
            return [] if validate_only else [new for new in decisions.values() if not isinstance(new, ApiError)]

        for change, refusal in (yield from self._controller.decided(charged)):
            if refusal is not None and isinstance(change, NewTopic | NewPartitions):
                decisions[change.name] = refusal
        return decisions

    # Deleting

    def delete(
        self, asked: Sequence[DeleteTopicState], *, charge: Charge = _free
    ) -> Generator[Waiting | None, None, list[DeletionDecision]]:
        """What becomes of each topic."""
        decided = decide_deletions(self._controller.cluster, asked)
        decisions: list[DeletionDecision] = []
        yield None
        while part := list(islice(decided, TOPICS_A_PART)):
            if any(isinstance(answer.decision, Deletion) for answer in part):
                decisions += yield from self._delete_some(part, charge)
            else:
                decisions += part
                yield None
        return decisions

    def _delete_some(
        self, decided: Sequence[DeletionDecision], charge: Charge
    ) -> Generator[Waiting, None, list[DeletionDecision]]:
        decisions: list[DeletionDecision] = []

        def decide() -> list[Deletion]:
            decisions.extend(answer._replace(decision=self._charged(answer.decision, charge)) for answer in decided)
            return [answer.decision for answer in decisions if isinstance(answer.decision, Deletion)]

        outcomes = yield from self._controller.decided(decide)
        refusals = {change.name: refusal for change, refusal in outcomes if isinstance(change, Deletion)}
        return [
            answer._replace(decision=refusals.get(answer.decision.name) or answer.decision)
            if isinstance(answer.decision, Deletion)
            else answer
            for answer in decisions
        ]

    def _charged(self, decision: Deletion | ApiError, charge: Charge) -> Deletion | ApiError:
        """What a decision comes to in its turn: another may have deleted or expanded the topic since it was made."""
        if isinstance(decision, ApiError):
            return decision
        topic = self._controller.cluster.topics.get(decision.name)
        if topic is None or topic.topic_id != decision.topic_id:
            message = "This server does not host this topic-partition."
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        try:
            charge(len(topic.replicas))
        except ApiError as refusal:
            return refusal.bare
        return decision._replace(partition_count=len(topic.replicas))


def _creation_parts(topics: Sequence[CreatableTopic]) -> Iterator[list[CreatableTopic]]:
    """Those that are created together: a topic with many partitions alone."""
    part: list[CreatableTopic] = []
    partitions = 0
    for topic in topics:
        count = len(topic.assignments) or topic.num_partitions
        if part and (len(part) == TOPICS_A_PART or partitions + count > PARTITIONS_A_PART):
            yield part
            part, partitions = [], 0
        part.append(topic)
        partitions += count
    if part:
        yield part
