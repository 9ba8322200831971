"""Brings decisions into being on this broker: topics from the store to logs in the data folder.

The store is the truth, and comes first in every change. What a crash leaves between the two is put right when the
catalog opens: a partition without a folder has no records yet, and a folder that the store does not know is put
aside, never deleted.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import random
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import NamedTuple, ParamSpec, TypeVar

from ottla.broker.config_layers import BrokerSettings
from ottla.broker.events import Events
from ottla.broker.slices import parts_of
from ottla.broker.topics import Topic, Topics
from ottla.controller import layout
from ottla.controller.cluster import Cluster
from ottla.controller.layout import BrokerNode, PartitionState, StoredTopic, TopicNode
from ottla.controller.refusal import Refusal
from ottla.controller.store import Create, Delete, Operation, Set, Store, StoreUnusable
from ottla.controller.topics import (
    Defaults,
    Deletion,
    DeletionDecision,
    NewPartitions,
    NewTopic,
    decide_creations,
    decide_deletions,
    decide_expansions,
    refuse_creations,
    refuse_expansions,
)
from ottla.log.errors import StorageFailed
from ottla.log.manager import LogManager
from ottla.log.topic_config import TopicConfig
from ottla.replica.partition import Partition
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_partitions import CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic
from ottla.wire.messages.delete_topics import DeleteTopicState
from ottla.wire.uuids import new_uuid, uuid_text

events = Events("ottla.broker")

STEP_TOPICS = 10
STEP_PARTITIONS = 100
STRAY_FOLDER = "-stray"
LONGEST_FOLDER_NAME = 255


Charge = Callable[[int], None]
"""Counts partitions that come or go against somebody's quota; Refusal where that is used up."""


def _free(_partitions: int) -> None:
    pass


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _without_collector(method: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """For what makes thousands of objects that all stay: looking for garbage among them takes a third of the time."""

    @functools.wraps(method)
    def paused(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return method(*arguments, **options)
        finally:
            if was_enabled:
                gc.enable()

    return paused


class _Expansion(NamedTuple):
    """New partitions of a topic that are not in the store yet."""

    new: NewPartitions
    node: TopicNode
    partitions: list[Partition]

    @property
    def operations(self) -> list[Operation]:
        name, first, replicas = self.new
        set_topic = Set(layout.topic_path(name), layout.encode_topic(self.node))
        return [set_topic, *layout.partition_operations(name, first, replicas)]


class Catalog:
    def __init__(
        self,
        store: Store,
        logs: LogManager,
        topics: Topics,
        settings: BrokerSettings,
        node_id: int,
        clock_ms: Callable[[], int],
    ) -> None:
        self.store = store
        self.cluster = Cluster([node_id])
        self.cluster_id = ""
        self._logs = logs
        self._topics = topics
        self._settings = settings
        self._node_id = node_id
        self._clock_ms = clock_ms
        self._random = random.Random()

    # Opening

    @_without_collector
    def open(self) -> None:
        """Read the store, open the logs, and make the two agree."""
        self.cluster_id = self._found()
        self.read_settings()
        stored = layout.read_topics_and_states(self.store)
        overrides = layout.read_configs(self.store, layout.TOPIC_CONFIGS)
        self._logs.open(lambda topic: self._topic_config(overrides.get(topic, {})), self._clock_ms())
        self._tell_of_recovery()
        self._put_strays_aside(stored)
        stored = self._lead_anew(stored)
        for name, topic in stored.items():
            self.cluster.add(name, topic.node)
            self._open_topic(name, topic, overrides.get(name, {}))

    def _tell_of_recovery(self) -> None:
        """Whatever opening the logs had to mend is something that the operator should know."""
        for name, reason in self._logs.unreadable.items():
            events.warning("a checkpoint cannot be read, and the logs are read instead", file=name, reason=reason)
        for (topic, index), recovered in self._logs.recovered.items():
            for fault in recovered.faults:
                events.warning("a log did not hold", partition=f"{topic}-{index}", reason=fault)
            if recovered.faults:
                events.warning(
                    "a log was mended",
                    partition=f"{topic}-{index}",
                    cut_bytes=recovered.cut_bytes,
                    rotten_bytes=recovered.rotten_bytes,
                    removed_segments=recovered.removed_segments,
                )

    def _found(self) -> str:
        """The id of the cluster; made up by the first who asks, together with what every new cluster has."""
        operations = layout.prepare_operations(self.store)
        node = layout.find(self.store, layout.CLUSTER_ID)
        if node is not None:
            cluster_id = layout.decode_cluster_id(node.data)
        else:
            cluster_id = uuid_text(new_uuid())
            config = {"min.insync.replicas": str(self._settings.topic_defaults.topic({}).min_insync_replicas)}
            operations += [
                Create(layout.CLUSTER_ID, layout.encode_cluster_id(cluster_id)),
                Create(layout.broker_config_path(None), layout.encode_config(config)),
            ]
        if operations:
            self.store.commit(operations)
        return cluster_id

    def read_settings(self) -> None:
        """Go by the broker settings that the store has."""
        configs = layout.read_configs(self.store, layout.BROKER_CONFIGS)
        self._settings.set_dynamic(configs.get(layout.DEFAULT_ENTITY, {}), configs.get(str(self._node_id), {}))

    def _topic_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        return self._settings.topic_defaults.topic(overrides)

    def _put_strays_aside(self, stored: Mapping[str, StoredTopic]) -> None:
        for name, index in list(self._logs.logs):
            topic = stored.get(name)
            if topic is None or index >= len(topic.node.replicas):
                self._put_aside(name, index, "the store does not know it")
            elif self._logs.topic_id(name, index) not in (None, topic.node.topic_id):
                self._put_aside(name, index, "it belongs to another topic of this name")

    def _put_aside(self, name: str, index: int, why: str) -> None:
        log = self._logs.logs.pop((name, index))
        self._logs.cleaner_offsets.pop((name, index), None)
        suffix = f".{new_uuid().hex()}{STRAY_FOLDER}"
        aside = f"{name}-{index}"[: LONGEST_FOLDER_NAME - len(suffix)] + suffix
        self._logs.files.rename(log.folder, f"{self._logs.folder}/{aside}")
        events.warning("a folder is put aside", partition=f"{name}-{index}", folder=aside, reason=why)

    def _lead_anew(self, stored: Mapping[str, StoredTopic]) -> dict[str, StoredTopic]:
        """Lead in a new epoch: after a crash the log may end sooner, and readers can tell by the epoch."""
        operations: list[Operation] = []
        led: dict[str, StoredTopic] = {}
        for name, topic in stored.items():
            states = [
                PartitionState(self._node_id, state.leader_epoch + 1, state.in_sync, state.controller_epoch)
                for state in topic.states
            ]
            operations += [
                Set(layout.state_path(name, index), layout.encode_state(state)) for index, state in enumerate(states)
            ]
            led[name] = StoredTopic(topic.node, states)
        if operations:
            self.store.commit(operations, is_vital=True)
        return led

    def _open_topic(self, name: str, topic: StoredTopic, overrides: dict[str, str]) -> None:
        partitions = self._open_partitions(name, topic.node, 0, topic.states, self._topic_config(overrides))
        self._topics.add(Topic(name, topic.node.topic_id, partitions, overrides))

    def _open_partitions(
        self, name: str, topic: TopicNode, first: int, states: Sequence[PartitionState], config: TopicConfig
    ) -> list[Partition]:
        """The partitions from the index `first` on; a log that is not there is made."""
        partitions = []
        now_ms = self._clock_ms()
        for index, state in enumerate(states, first):
            log = self._logs.logs.get((name, index))
            if log is None:
                log = self._logs.create(name, index, config, now_ms, topic.topic_id)
            replicas = topic.replicas[index]
            partitions.append(Partition(name, index, topic.topic_id, log, replicas, state.leader_epoch))
        return partitions

    def register(self, broker: BrokerNode) -> None:
        """Tell the others that this broker is there, for as long as its store is open."""
        path = layout.broker_path(self._node_id)
        self.store.commit([Create(path, layout.encode_broker(broker), is_ephemeral=True)], is_vital=True)

    # Topics come and go

    def _defaults(self) -> Defaults:
        config = self._settings.config
        return Defaults(self._settings.topic_defaults, config.num_partitions, config.default_replication_factor)

    @_without_collector
    def create_topics(
        self, asked: Sequence[CreatableTopic], *, validate_only: bool = False, charge: Charge = _free
    ) -> dict[str, NewTopic | Refusal]:
        """Decide on a request, and create what may be: in the store all at once, then the logs."""
        decisions = decide_creations(self.cluster, asked, self._defaults(), self._random, new_uuid)
        for topic in _new(decisions):
            if (refusal := _refused(charge, len(topic.node.replicas))) is not None:
                decisions[topic.name] = refusal
        if validate_only:
            return decisions
        created = _new(decisions)
        operations = [
            operation
            for topic in created
            for operation in layout.topic_operations(topic.name, topic.node, topic.overrides)
        ]
        try:
            self._commit(operations)
        except Refusal as refusal:
            return decisions | {topic.name: refusal for topic in created}
        for topic in created:
            self.cluster.add(topic.name, topic.node)
            try:
                self._open_topic(topic.name, _new_topic(topic.node), topic.overrides)
                events.debug("a topic was created", topic=topic.name, partitions=len(topic.node.replicas))
            except StorageFailed as failure:
                events.warning("a topic cannot be created", topic=topic.name, reason=failure)
                with contextlib.suppress(Refusal):  # then it stays in the store, and can be deleted or is there later
                    self._delete([topic.name])
                decisions[topic.name] = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
        return decisions

    def _commit(self, operations: Sequence[Operation]) -> None:
        """Change the store; if it cannot be written, as on a full disk, nothing has changed."""
        try:
            if operations:
                self.store.commit(operations)
        except StoreUnusable as error:
            raise storage_refusal(error) from error

    def create_topics_in_steps(
        self, asked: Sequence[CreatableTopic], *, validate_only: bool = False, charge: Charge = _free
    ) -> Generator[None, None, dict[str, NewTopic | Refusal]]:
        """The same, some topics a step: each of them is there or not, but not all of them at the same time."""
        refused = refuse_creations(asked, self._defaults())
        decisions: dict[str, NewTopic | Refusal] = {}
        left = [topic for topic in asked if topic.name not in refused]
        for part in _creation_parts(left):
            decisions.update(self.create_topics(part, validate_only=validate_only, charge=charge))
            yield
        decisions.update(refused)
        return decisions

    def delete_topics(
        self, asked: Sequence[DeleteTopicState], *, charge: Charge = _free
    ) -> Generator[None, None, list[DeletionDecision]]:
        """What becomes of each topic, some of them a step."""
        decisions: list[DeletionDecision] = []
        for part in parts_of(decide_deletions(self.cluster, asked), STEP_TOPICS):
            decisions += self._delete_some(part, charge)
            yield
        return decisions

    def _delete_some(self, decided: Sequence[DeletionDecision], charge: Charge) -> list[DeletionDecision]:
        decisions = [answer._replace(decision=self._charged(answer.decision, charge)) for answer in decided]
        try:
            self._delete([answer.decision.name for answer in decisions if isinstance(answer.decision, Deletion)])
        except Refusal as refusal:
            return [
                answer._replace(decision=refusal) if isinstance(answer.decision, Deletion) else answer
                for answer in decisions
            ]
        return decisions

    def _charged(self, decision: Deletion | Refusal, charge: Charge) -> Deletion | Refusal:
        """What a decision comes to when it is carried out: another may have deleted the topic since it was made."""
        if isinstance(decision, Refusal):
            return decision
        topic = self.cluster.topics.get(decision.name)
        if topic is None or topic.topic_id != decision.topic_id:
            message = "This server does not host this topic-partition."
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        return _refused(charge, len(topic.replicas)) or decision

    def _delete(self, names: Sequence[str]) -> None:
        operations: list[Operation] = []
        for name in names:
            for index in range(len(self.cluster.topics[name].replicas)):
                operations += [Delete(layout.state_path(name, index)), Delete(layout.partition_path(name, index))]
            operations += [
                Delete(layout.partitions_path(name)),
                Delete(layout.topic_path(name)),
                Delete(layout.topic_config_path(name)),
            ]
        self._commit(operations)
        for name in names:
            self._forget(name)
        try:
            self._logs.sync_deletions()
        except OSError as error:
            events.warning("a loss of power may bring deleted partitions back", reason=error)

    def _forget(self, name: str) -> None:
        """Take a topic that the store no longer has out of service, and its logs off the disk."""
        node = self.cluster.remove(name)
        topic = self._topics.remove(name) if name in self._topics.by_name else None
        for index in range(len(node.replicas)):
            if (name, index) in self._logs.logs:
                self._delete_log(name, index)
        for partition in topic.partitions if topic is not None else ():
            partition.wake_all()

    def _delete_log(self, name: str, index: int) -> None:
        try:
            self._logs.delete(name, index, self._clock_ms())
        except OSError as error:
            # It is out of service all the same, and the next start puts the folder aside.
            events.warning("the folder of a deleted partition stays", partition=f"{name}-{index}", reason=error)

    def create_partitions(
        self, asked: Sequence[CreatePartitionsTopic], *, validate_only: bool = False, charge: Charge = _free
    ) -> Generator[None, None, dict[str, NewPartitions | Refusal]]:
        """What becomes of each topic, some of them a step."""
        refused = refuse_expansions(self.cluster, asked)
        decisions: dict[str, NewPartitions | Refusal] = dict(refused)
        left = [topic for topic in asked if topic.name not in refused]
        for part in parts_of(left, STEP_TOPICS):
            decisions.update(self._expand_some(part, validate_only, charge))
            yield
        return decisions

    def _expand_some(
        self, asked: Sequence[CreatePartitionsTopic], validate_only: bool, charge: Charge
    ) -> dict[str, NewPartitions | Refusal]:
        decisions = decide_expansions(self.cluster, asked, self._random)
        expansions: list[_Expansion] = []
        for name, decision in decisions.items():
            if isinstance(decision, NewPartitions):
                try:
                    charge(len(decision.replicas))
                    if not validate_only:
                        expansions.append(self._prepare(decision))
                except Refusal as refusal:
                    decisions[name] = refusal
        try:
            self._commit([operation for expansion in expansions for operation in expansion.operations])
        except Refusal as refusal:
            for new, _, _ in expansions:
                self._drop_empty_logs(new)
                decisions[new.name] = refusal
            return decisions
        for new, node, partitions in expansions:
            self.cluster.replace(new.name, node)
            self._topics.by_name[new.name].partitions += partitions
            self._topics.changed(new.name)
        return decisions

    def _prepare(self, new: NewPartitions) -> _Expansion:
        """The logs come before the store: they leave nothing on the disk yet, and may be what fails."""
        before = self.cluster.topics[new.name]
        node = TopicNode(before.topic_id, before.replicas + new.replicas)
        config = self._topic_config(self._topics.by_name[new.name].overrides)
        try:
            partitions = self._open_partitions(new.name, node, new.first, _first_states(new.replicas), config)
        except StorageFailed as failure:
            self._drop_empty_logs(new)
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
        return _Expansion(new, node, partitions)

    def _drop_empty_logs(self, new: NewPartitions) -> None:
        for index in range(new.first, new.first + len(new.replicas)):
            self._logs.logs.pop((new.name, index), None)

    # Configurations

    def set_topic_configs(self, overrides: Mapping[str, dict[str, str]]) -> None:
        """Give topics other configurations, which were checked before, in place of those they have."""
        self._commit(
            [Set(layout.topic_config_path(name), layout.encode_config(texts)) for name, texts in overrides.items()]
        )
        for name, texts in overrides.items():
            self._topics.by_name[name].overrides = texts
            self._reconfigure(self._topics.by_name[name])

    def set_broker_configs(self, node_id: int | None, texts: Mapping[str, str]) -> None:
        """Give this broker, or with None all brokers, other settings; topics may have other fallbacks then."""
        self._commit([layout.write_config(self.store, layout.broker_config_path(node_id), texts)])
        self.read_settings()
        for topic in self._topics:
            self._reconfigure(topic)

    def _reconfigure(self, topic: Topic) -> None:
        config = self._topic_config(topic.overrides)
        for partition in topic.partitions:
            if partition.log.config is not config:
                partition.log.reconfigure(config)

    def close(self) -> None:
        self.store.close()


def _creation_parts(topics: Sequence[CreatableTopic]) -> Iterable[list[CreatableTopic]]:
    """Those that are created in a step: a topic with many partitions alone."""
    part: list[CreatableTopic] = []
    partitions = 0
    for topic in topics:
        count = len(topic.assignments) or topic.num_partitions
        if part and (len(part) == STEP_TOPICS or partitions + count > STEP_PARTITIONS):
            yield part
            part, partitions = [], 0
        part.append(topic)
        partitions += count
    if part:
        yield part


def storage_refusal(error: StoreUnusable) -> Refusal:
    events.warning("a change was refused", reason=error)
    return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"The store of the cluster cannot be written: {error}")


def _refused(charge: Charge, partitions: int) -> Refusal | None:
    try:
        charge(partitions)
    except Refusal as refusal:
        return refusal
    return None


def _new(decisions: Mapping[str, NewTopic | Refusal]) -> list[NewTopic]:
    return [decision for decision in decisions.values() if isinstance(decision, NewTopic)]


def _new_topic(node: TopicNode) -> StoredTopic:
    return StoredTopic(node, _first_states(node.replicas))


def _first_states(replicas: Iterable[list[int]]) -> list[PartitionState]:
    return [layout.first_state(brokers) for brokers in replicas]
