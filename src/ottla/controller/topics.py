"""May a topic be created, expanded or deleted? Decisions without I/O, refused in Kafka's codes and words.

One call decides on a whole request. Each decision names what becomes of its topic; whoever asked brings it about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

from ottla.config import ConfigError
from ottla.controller.assignment import check_manual, spread
from ottla.controller.changes import Change, Deletion, NewPartitions, NewTopic, RemovedPartitions
from ottla.controller.cluster import Cluster
from ottla.controller.growing import NOT_IN_ORDER, InOrder, begun, closed
from ottla.controller.layout import PartitionState, TopicNode, first_states
from ottla.controller.topic_names import CLUSTER_METADATA, INTERNAL, check_name
from ottla.log.topic_defaults import TopicDefaults
from ottla.records.growth import is_growing
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.create_partitions import CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic
from ottla.wire.messages.delete_topics import DeleteTopicState
from ottla.wire.uuids import ZERO_UUID

MOST_PARTITIONS = 10_000
MOST_RECORDS = 10_000  # Kafka's of one operation: one a topic, one a partition, one a configuration
BY_DEFAULT = -1


class Defaults(NamedTuple):
    """What a topic gets where nobody says otherwise."""

    configs: TopicDefaults
    partitions: int = 1
    replication_factor: int = 1


# Creating


def decide_creations(
    cluster: Cluster,
    asked: Sequence[CreatableTopic],
    defaults: Defaults,
    random: Random,
    new_id: Callable[[], bytes],
) -> dict[str, NewTopic | ApiError]:
    """What becomes of each name. A request that is too large is refused as a whole."""
    named = Counter(topic.name for topic in asked)
    decisions: dict[str, NewTopic | ApiError] = {}
    try:
        alone = [topic for topic in asked if named[topic.name] == 1 and topic.name != CLUSTER_METADATA]
        _check_total(alone, defaults)
        for topic in alone:
            try:
                decisions[topic.name] = _creation(cluster, topic, defaults, random, new_id)
            except ApiError as refusal:
                decisions[topic.name] = refusal.bare
        _check_records(decisions)
    except ApiError as refusal:
        return dict.fromkeys(named, refusal.bare)
    for name, times in named.items():
        if times > 1:
            decisions[name] = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif name == CLUSTER_METADATA:
            message = f"Creation of internal topic {name} is prohibited."
            decisions[name] = ApiError(ErrorCode.INVALID_REQUEST, message)
    return decisions


def refuse_creations(asked: Sequence[CreatableTopic], defaults: Defaults) -> dict[str, ApiError]:
    """What is wrong with a request as a whole, by the names that it is told for, before any topic is looked at."""
    named = Counter(topic.name for topic in asked)
    try:
        alone = [topic for topic in asked if named[topic.name] == 1]
        _check_total(alone, defaults)
        records = sum(1 + len(topic.configs) + _partition_count(topic, defaults) for topic in alone)
        _check_record_count(records)
    except ApiError as refusal:
        return dict.fromkeys(named, refusal.bare)
    return {
        name: ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name, times in named.items() if times > 1
    }


def _partition_count(topic: CreatableTopic, defaults: Defaults) -> int:
    count = defaults.partitions if topic.num_partitions == BY_DEFAULT else topic.num_partitions
    return len(topic.assignments) or max(count, 0)


def _check_total(asked: Sequence[CreatableTopic], defaults: Defaults) -> None:
    total = 0
    for topic in asked:
        count = defaults.partitions if topic.num_partitions == BY_DEFAULT else topic.num_partitions
        total += len(topic.assignments) or count
    if total > MOST_PARTITIONS:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _check_records(decisions: dict[str, NewTopic | ApiError]) -> None:
    topics = [decision for decision in decisions.values() if isinstance(decision, NewTopic)]
    _check_record_count(sum(1 + len(topic.overrides) + len(topic.node.replicas) for topic in topics))


def _check_record_count(count: int) -> None:
    if count > MOST_RECORDS:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def _creation(
    cluster: Cluster, topic: CreatableTopic, defaults: Defaults, random: Random, new_id: Callable[[], bytes]
) -> NewTopic:
    name = topic.name
    check_name(name)
    if name in cluster.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    collision = cluster.collision(name)
    if collision is not None:
        message = f"Topic '{name}' collides with existing topic: {collision}"
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    overrides = {config.name: config.value for config in topic.configs}
    check_configs(defaults.configs, overrides)
    replicas = _replicas(cluster, topic, defaults, random)
    texts = {key: text for key, text in overrides.items() if text is not None}  # all of them, once checked
    return NewTopic(name, TopicNode(new_id(), replicas), texts, _first_states(cluster, replicas))


def check_configs(defaults: TopicDefaults, overrides: dict[str, str | None]) -> None:
    if overrides:
        try:
            defaults.check(overrides)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _replicas(cluster: Cluster, topic: CreatableTopic, defaults: Defaults, random: Random) -> list[list[int]]:
    count, factor = topic.num_partitions, topic.replication_factor
    if topic.assignments:
        return _manual_replicas(cluster, topic)
    if factor < BY_DEFAULT or factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if count < BY_DEFAULT or count == 0:
        message = "Number of partitions was set to an invalid non-positive value."
        raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
    count = defaults.partitions if count == BY_DEFAULT else count
    factor = defaults.replication_factor if factor == BY_DEFAULT else factor
    return _spread(cluster, count, factor, random)


def _spread(cluster: Cluster, count: int, factor: int, random: Random, first: int = 0) -> list[list[int]]:
    """Over racks, and over brokers that are there and stay, as far as those are enough."""
    brokers, usable = sorted(cluster.brokers), set(cluster.usable)
    racks = {node_id: cluster.brokers[node_id].node.rack for node_id in brokers}
    unfit = [node_id for node_id in brokers if node_id not in usable]
    return spread(brokers, count, factor, random, first, racks=racks, unfit=unfit)


def _manual_replicas(cluster: Cluster, topic: CreatableTopic) -> list[list[int]]:
    for field, value in (("replication factor", topic.replication_factor), ("numPartitions", topic.num_partitions)):
        if value != BY_DEFAULT:
            message = f"A manual partition assignment was specified, but {field} was not set to -1."
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
    replicas: dict[int, list[int]] = {}
    factor = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in replicas:
            message = f"Found multiple manual partition assignments for partition {index}"
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        check_manual(assignment.broker_ids, list(cluster.brokers), factor)
        factor = len(assignment.broker_ids)
        replicas[index] = assignment.broker_ids
    if sorted(replicas) != list(range(len(replicas))):
        message = "partitions should be a consecutive 0-based integer sequence"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return [replicas[index] for index in range(len(replicas))]


def _first_states(cluster: Cluster, replicas: Sequence[Sequence[int]]) -> list[PartitionState]:
    usable = set(cluster.usable)
    for index, brokers in enumerate(replicas):
        if usable.isdisjoint(brokers):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "All brokers specified in the manual partition assignment for "
                f"partition {index} are fenced or in controlled shutdown.",
            )
    return first_states(replicas, usable, cluster.controller_epoch)


# Expanding


def refuse_expansions(
    cluster: Cluster, asked: Sequence[CreatePartitionsTopic], in_order: Mapping[str, InOrder] = NOT_IN_ORDER
) -> dict[str, ApiError]:
    """What is wrong with a request as a whole."""
    named = Counter(topic.name for topic in asked)
    added = [_added(cluster, topic) for topic in asked if named[topic.name] == 1]
    if sum(count for count in added if count <= MOST_RECORDS) > MOST_RECORDS:
        return dict.fromkeys(named, _too_many(bool(in_order)))
    return {
        name: ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name, times in named.items() if times > 1
    }


def _too_many(is_in_order: bool) -> ApiError:
    """Kafka does not say what was wrong. Growth in order is ours, so it does."""
    if not is_in_order:
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    message = f"One request makes {MOST_RECORDS} partitions at most. Let topics grow in steps, one after the other."
    return ApiError(ErrorCode.INVALID_PARTITIONS, message)


def _added(cluster: Cluster, topic: CreatePartitionsTopic) -> int:
    """How many partitions it may get; 0 if it is refused for another reason."""
    known = cluster.topics.get(topic.name)
    added = 0 if known is None else max(topic.count - len(known.replicas), 0)
    return added if topic.assignments is None or len(topic.assignments) == added else 0


def decide_expansions(
    cluster: Cluster,
    asked: Sequence[CreatePartitionsTopic],
    random: Random,
    in_order: Mapping[str, InOrder] = NOT_IN_ORDER,
) -> dict[str, NewPartitions | ApiError]:
    """What becomes of each name, of a request that is not refused as a whole."""
    decisions: dict[str, NewPartitions | ApiError] = {}
    for topic in asked:
        try:
            decisions[topic.name] = _expansion(cluster, topic, random, in_order.get(topic.name))
        except ApiError as refusal:
            decisions[topic.name] = refusal.bare
    return decisions


def _expansion(
    cluster: Cluster, topic: CreatePartitionsTopic, random: Random, in_order: InOrder | None
) -> NewPartitions:
    name, count = topic.name, topic.count
    if name not in cluster.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    node = cluster.topics[name]
    existing = node.replicas
    added = count - len(existing)
    if added == 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if added < 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {name} currently has {len(existing)} partition(s); {count} would not be an increase.",
        )
    if name in INTERNAL:
        message = f"The partitions of {name} cannot be more: groups and transactions would be looked for in others."
        raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
    if added > MOST_RECORDS:
        raise _too_many(in_order is not None)
    if is_growing(node.growths):
        message = f"Topic {name} is growing in order: its last new partitions are not open yet."
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    factor = len(existing[0])
    if topic.assignments is None:
        replicas = _spread(cluster, added, factor, random, len(existing))
        return _expanded(cluster, name, replicas, in_order)
    if len(topic.assignments) != added:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but only {len(topic.assignments)} assignment(s) were "
            "specified.",
        )
    for assignment in topic.assignments:
        check_manual(assignment.broker_ids, list(cluster.brokers), factor)
    replicas = [assignment.broker_ids for assignment in topic.assignments]
    return _expanded(cluster, name, replicas, in_order)


def _expanded(cluster: Cluster, name: str, replicas: list[list[int]], in_order: InOrder | None) -> NewPartitions:
    node = cluster.topics[name]
    first = len(node.replicas)
    states = _first_states(cluster, replicas)
    after = node._replace(replicas=node.replicas + replicas)
    if in_order is not None:
        growth = begun(cluster, name, len(after.replicas), in_order)
        return NewPartitions(name, first, after._replace(growths=(*node.growths, growth)), closed(states))
    return NewPartitions(name, first, after, states)


# Deleting


class DeletionDecision(NamedTuple):
    """The answer to one of the topics that a request names."""

    name: str | None
    topic_id: bytes
    decision: Deletion | ApiError


def decide_deletions(cluster: Cluster, asked: Sequence[DeleteTopicState]) -> Iterator[DeletionDecision]:
    """What becomes of each topic, once each: named twice, by whatever, it stays. One is decided on at a time."""
    names = Counter(topic.name for topic in asked if topic.name is not None and topic.topic_id == ZERO_UUID)
    ids = Counter(topic.topic_id for topic in asked if topic.name is None and topic.topic_id != ZERO_UUID)
    for topic in asked:
        if topic.name is not None and topic.topic_id != ZERO_UUID:
            message = "You may not specify both topic name and topic id."
            yield _kept(topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, message)
        elif topic.name is None and topic.topic_id == ZERO_UUID:
            yield _kept(None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    for name, times in names.items():
        topic_id = cluster.topics[name].topic_id if name in cluster.topics else ZERO_UUID
        if times > 1:
            yield _kept(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif name not in cluster.topics:
            message = "This server does not host this topic-partition."
            yield _kept(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        elif topic_id in ids:
            del ids[topic_id]
            message = "The provided topic name maps to an ID that was already supplied."
            yield _kept(name, topic_id, ErrorCode.INVALID_REQUEST, message)
        else:
            yield DeletionDecision(name, topic_id, _deletion(cluster, name))
    for topic_id, times in ids.items():
        if times > 1:
            yield _kept(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
        elif topic_id not in cluster.names:
            yield _kept(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        else:
            name = cluster.names[topic_id]
            yield DeletionDecision(name, topic_id, _deletion(cluster, name))


def _kept(name: str | None, topic_id: bytes, code: ErrorCode, message: str) -> DeletionDecision:
    return DeletionDecision(name, topic_id, ApiError(code, message))


def _deletion(cluster: Cluster, name: str) -> Deletion:
    topic = cluster.topics[name]
    return Deletion(name, topic.topic_id, len(topic.replicas))


# Undoing


def still_possible(cluster: Cluster, undone: Sequence[Deletion | RemovedPartitions]) -> list[Change]:
    """What takes new topics and partitions back that could not be made, unless somebody has deleted them since.

    Partitions that were added behind them cannot be made either, and go with them.
    """
    found: list[Change] = []
    for change in undone:
        topic_id = change.topic_id if isinstance(change, Deletion) else change.node.topic_id
        topic = cluster.topics.get(change.name)
        if topic is None or topic.topic_id != topic_id:
            continue
        if isinstance(change, Deletion):
            found.append(_deletion(cluster, change.name))
        elif len(topic.replicas) > len(change.node.replicas):
            found.append(change._replace(count_before=len(topic.replicas)))
    return found
