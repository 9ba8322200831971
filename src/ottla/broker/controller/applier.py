"""Makes true on this broker what the cluster has decided: topics become logs and partitions, settings are obeyed.

Changes are applied one after the other, in slices. A topic is there as a whole or not at all. After a crash the store
and the data folder may differ, and the next start puts that right: a partition without a folder has no records yet. A
folder that the store does not know is put aside, never deleted.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, assert_never

from ottla.broker.config.layers import BrokerSettings
from ottla.broker.events import Events
from ottla.broker.loop.slices import Job, Slices, Steps, parts_of
from ottla.broker.topics import Topic, Topics
from ottla.controller.changes import (
    BrokerDown,
    BrokerLeaving,
    BrokerUp,
    Change,
    ChangedBrokerConfig,
    ChangedGroupConfig,
    ChangedQuotas,
    ChangedReplicas,
    ChangedStates,
    ChangedTopicConfig,
    Deletion,
    FailedReplicas,
    ForgottenBroker,
    NewPartitions,
    NewTopic,
    RemovedPartitions,
)
from ottla.controller.cluster import Cluster
from ottla.controller.layout import NOBODY, PartitionState, TopicNode
from ottla.log.checkpoint import TopicPartition
from ottla.log.errors import LogError, StorageFailed
from ottla.log.folders import LogFolders
from ottla.log.hole import remove_end_mark
from ottla.log.impossible_epochs import mend_epochs
from ottla.log.log import Log
from ottla.log.loss import Loss
from ottla.log.topic_config import TopicConfig
from ottla.replica.partition import Partition
from ottla.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from ottla.broker.quotas.quotas import Quotas

events = Events("ottla.broker")

PARTITIONS_A_STEP = 50
TOPICS_A_STEP = 50
OF_ANOTHER_TOPIC = "it belongs to another topic of this name"

Applied = Callable[[list[ApiError | None], Exception | None], None]
"""What became of each change: None where it is true now. Or what went wrong in a way that nobody thought of."""


class Applier:
    def __init__(
        self,
        slices: Slices,
        logs: LogFolders,
        topics: Topics,
        settings: BrokerSettings,
        quotas: Quotas,
        node_id: int,
        clock_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        brokers_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`slices`: where one change is applied after the other. `brokers_changed`: others are there, or elsewhere."""
        self._brokers_changed = brokers_changed
        self._slices = slices
        self._logs = logs
        self._topics = topics
        self._settings = settings
        self._quotas = quotas
        self._node_id = node_id
        self._clock_ms = clock_ms
        self._steady_ms = steady_ms
        self.takes_roles = False
        """Whether the cluster knows that this broker was started anew: until then it leads and follows nothing."""
        self.loss = Loss.NOTHING
        """What was found missing when the logs were opened, maybe not in one of them alone."""
        self.rotten: frozenset[tuple[bytes, int]] = frozenset()
        """The partitions of which records have rotted: the others lack nothing for that."""

    # Starting

    def obey_settings(self, cluster: Cluster) -> None:
        """Go by the broker settings that the cluster has."""
        configs = cluster.broker_configs
        self._settings.set_dynamic(configs.get(None, {}), configs.get(self._node_id, {}))

    def open(self, cluster: Cluster, *, is_up: bool = True) -> None:
        """Open the logs, and make them and the cluster agree. Nobody is served yet.

        `is_up`: the cluster knows of this start of the broker. Until then it has no roles: those from before the start
        were of an older epoch, and as a follower it would not count as in sync.
        """
        self.takes_roles = is_up
        was_enabled = gc.isenabled()
        gc.disable()  # thousands of objects that all stay: looking for garbage among them takes a third of the time
        try:
            self._open(cluster)
        finally:
            if was_enabled:
                gc.enable()

    def _open(self, cluster: Cluster) -> None:
        configs = {name: self._topic_config(texts) for name, texts in cluster.topic_configs.items()}
        topic_ids = {name: node.topic_id for name, node in cluster.topics.items()}
        self._logs.open(lambda topic: configs.get(topic) or self._topic_config({}), self._clock_ms(), topic_ids)
        self._tell_of_recovery()
        self._tell_of_kept_strays()
        aside = self._put_strays_aside(cluster)
        for name, node in cluster.topics.items():
            logs = self._opened_logs(name, node, configs[name])
            replicas = {index: self._partition(name, index, node, log) for index, log in logs.items()}
            for index, partition in replicas.items():
                self._assume(partition, node.replicas[index], cluster.states[name][index])
            self._add_topic(name, node, replicas, cluster.topic_configs[name])
        self._look_for_loss(cluster, aside)
        for entity, quotas in cluster.quotas.items():
            self._quotas.set_limits(entity, quotas)

    def _opened_logs(self, name: str, node: TopicNode, config: TopicConfig) -> dict[int, Log]:
        """Those of this broker; one that is not there is made."""
        now_ms = self._clock_ms()
        return {
            index: self._logs.find_or_create(name, index, config, now_ms, node.topic_id) for index in self._own(node)
        }

    def _own(self, node: TopicNode, first: int = 0) -> list[int]:
        """The partitions that this broker has a replica of, from an index on."""
        node_id = self._node_id
        return [index for index, replicas in enumerate(node.replicas[first:], first) if node_id in replicas]

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

    def _tell_of_kept_strays(self) -> None:
        """As with Kafka, nobody removes them but the operator."""
        kept = self._logs.set_aside
        if kept:
            events.warning("folders that were put aside are still there", folders=len(kept), first=kept[0])

    def _look_for_loss(self, cluster: Cluster, aside: set[TopicPartition]) -> None:
        """Records that were committed are gone, as when files were damaged: others that have them shall lead first."""
        rotten: set[tuple[bytes, int]] = set()
        for (topic, index), log in self._logs.logs.items():
            if (log.hole is not None or log.lacks_end) and len(cluster.topics[topic].replicas[index]) > 1:
                rotten.add((cluster.topics[topic].topic_id, index))
                first_offset = log.end_offset if log.hole is None else log.hole.first_offset
                reason = f"records from offset {first_offset} on have rotted; they are copied from another"
                events.warning("a log did not hold", partition=f"{topic}-{index}", reason=reason)
        self.rotten = frozenset(rotten)
        for topic, index in set(self._logs.take_lacking()).difference(aside):
            self.loss = Loss.TAIL
            reason = "it ends before what was known to be committed"
            events.warning("a log did not hold", partition=f"{topic}-{index}", reason=reason)

    def loss_is_known(self) -> None:
        """The cluster goes by what is missing here."""
        self.loss, self.rotten = Loss.NOTHING, frozenset()
        for log in self._logs.logs.values():
            if log.lacks_end:
                log.lacks_end = False
                with suppress(OSError):  # then the next start tells it once more
                    remove_end_mark(log.files, log.folder)

    def _put_strays_aside(self, cluster: Cluster) -> set[TopicPartition]:
        for aside, (name, index) in self._logs.strays.items():
            self._tell_of_stray(aside, name, index, OF_ANOTHER_TOPIC)
        before = {*self._logs.logs, *self._logs.strays.values()}
        for name, index in list(self._logs.logs):
            topic = cluster.topics.get(name)
            if topic is None or index >= len(topic.replicas):
                self._put_aside(name, index, "the store does not know it")
            elif self._logs.topic_id(name, index) not in (None, topic.topic_id):
                self._put_aside(name, index, OF_ANOTHER_TOPIC)
            elif self._node_id not in topic.replicas[index]:
                self._put_aside(name, index, "other brokers have the partition now")
        return before.difference(self._logs.logs)

    def _put_aside(self, name: str, index: int, why: str) -> None:
        aside = self._logs.put_aside(self._logs.logs[name, index], (name, index))
        self._tell_of_stray(aside, name, index, why)

    @staticmethod
    def _tell_of_stray(aside: str, name: str, index: int, why: str) -> None:
        events.warning("a folder is put aside", partition=f"{name}-{index}", folder=aside, reason=why)

    # Changes

    def apply(self, changes: Sequence[Change], applied: Applied) -> None:
        """Make changes true that the store has, behind those that were given before."""

        def done(refusals: list[ApiError | None] | None, failure: Exception | None) -> None:
            applied(refusals if refusals is not None else [None] * len(changes), failure)

        self._slices.start(self._steps(changes), done)

    @property
    def is_idle(self) -> bool:
        return not len(self._slices)

    def _steps(self, changes: Sequence[Change]) -> Steps:
        refusals: list[ApiError | None] = []
        for change in changes:
            try:
                yield from self._applied(change)
            except StorageFailed as failure:
                events.warning("a topic cannot be created", reason=failure)
                refusals.append(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)))
            except Exception:  # a mistake with one change must not keep the others from being made
                events.failure("a change could not be applied", change=type(change).__name__)
                refusals.append(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
            else:
                refusals.append(None)
        yield from self._synced()
        return refusals

    def _synced(self) -> Generator[Job, None, None]:
        """Folders that were renamed stay so after a loss of power, too."""
        if self._logs.has_deletions_to_sync:
            self._logs.has_deletions_to_sync = False
            try:
                yield self._logs.sync_deletions
            except OSError as error:
                self._logs.has_deletions_to_sync = True
                events.warning("a loss of power may bring deleted partitions back", reason=error)
        stale = self._logs.stale
        if stale:
            try:
                yield self._logs.forgetting()
            except OSError as error:  # the first record of another partition of that name tries again
                events.warning("checkpoints still tell of deleted partitions", reason=error)
            else:
                self._logs.forgotten(stale)

    def _applied(self, change: Change) -> Steps:
        match change:
            case NewTopic():
                return self._create(change)
            case NewPartitions():
                return self._expand(change)
            case Deletion(name, topic_id):
                return self._delete(name, topic_id)
            case ChangedTopicConfig(name, texts):
                return self._configure(name, texts)
            case ChangedBrokerConfig(node_id, texts):
                return self._obey(node_id, texts)
            case ChangedQuotas(entity, quotas):
                self._quotas.set_limits(entity, quotas)
                return _nothing()
            case ChangedReplicas(name, node):
                return self._move(name, node)
            case ChangedStates(states):
                return self._take_roles(states)
            case RemovedPartitions(name, node):
                return self._shrink(name, node)
            case ChangedGroupConfig():
                return _nothing()  # groups look at the cluster
            case BrokerUp() | BrokerDown() | BrokerLeaving() | FailedReplicas() | ForgottenBroker():
                self._brokers_changed()
                return _nothing()
            case _:
                assert_never(change)

    def _topic_config(self, overrides: dict[str, str]) -> TopicConfig:
        return self._settings.topic_defaults.topic(overrides)

    # Topics

    def _create(self, change: NewTopic) -> Steps:
        name, node, overrides, states = change
        known = self._topics.by_name.get(name)
        if known is not None and known.topic_id == node.topic_id:
            return  # the next controller was quicker to tell of it
        replicas = yield from self._new_replicas(name, node, self._own(node), self._topic_config(overrides))
        yield from self._assume_all(replicas, node, states, 0)
        self._add_topic(name, node, replicas, overrides)
        events.debug("a topic was created", topic=name, partitions=len(node.replicas))

    def _add_topic(self, name: str, node: TopicNode, replicas: dict[int, Partition], overrides: dict[str, str]) -> None:
        topic = Topic(name, node.topic_id, node.replicas, replicas, overrides)
        if node.growths:
            topic.grow(node.growths)
        self._topics.add(topic)

    def _expand(self, change: NewPartitions) -> Steps:
        name, first, node, states = change
        topic = self._topics.by_name.get(name)
        if topic is not None and topic.partition_count >= len(node.replicas):
            return  # as with new topics
        if topic is None or topic.partition_count != first:
            raise StorageFailed(f"topic {name}, or partitions before these, could not be made")
        config = self._topic_config(topic.overrides)
        replicas = yield from self._new_replicas(name, node, self._own(node, first), config)
        yield from self._assume_all(replicas, node, states, first)
        topic.replicas |= replicas
        topic.assignment = node.replicas
        topic.grow(node.growths)
        self._topics.changed(name)

    def _new_replicas(
        self, name: str, node: TopicNode, indexes: Sequence[int], config: TopicConfig
    ) -> Generator[Job | None, None, dict[int, Partition]]:
        """All their logs are made, and then all of them are there."""
        now_ms = self._clock_ms()
        logs: dict[tuple[str, int], Log] = {}
        replicas: dict[int, Partition] = {}
        for part in parts_of(indexes, PARTITIONS_A_STEP):
            for index in part:
                log = logs[name, index] = self._logs.make(name, index, config, now_ms, node.topic_id)
                replicas[index] = self._partition(name, index, node, log)
            yield None
        yield from self._synced()
        self._logs.adopt(logs)
        return replicas

    def _partition(self, name: str, index: int, node: TopicNode, log: Log) -> Partition:
        partition = Partition(name, index, node.topic_id, log, self._node_id, self._topics.shell)
        if log.failure is not None:
            partition.go_offline()
        return partition

    def _assume_all(
        self, replicas: Mapping[int, Partition], node: TopicNode, states: Sequence[PartitionState], first: int
    ) -> Steps:
        """Give new partitions their roles, before anybody knows of them; `states` from the index `first` on."""
        for part in parts_of(list(replicas.items()), PARTITIONS_A_STEP):
            for index, partition in part:
                self._assume(partition, node.replicas[index], states[index - first])
            yield None

    def _assume(self, partition: Partition, replicas: Sequence[int], state: PartitionState) -> None:
        """Have a partition lead, follow or do neither."""
        if not self.takes_roles:
            return
        is_new = state.partition_epoch > partition.partition_epoch
        if partition.log.epochs.latest > state.leader_epoch and is_new and list(replicas) == [self._node_id]:
            self._mend_epochs(partition, state.leader_epoch)
        partition.apply(
            leader_id=state.leader_id,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=replicas,
            in_sync=state.in_sync,
            now_ms=self._steady_ms(),
            eligible=state.eligible,
        )

    def _mend_epochs(self, partition: Partition, leader_epoch: int) -> None:
        """The log knows epochs that never were. (With other replicas one of them may know better: it is cut there.)"""
        latest = partition.log.epochs.latest
        try:
            offset = mend_epochs(partition.log, leader_epoch)
        except (OSError, LogError) as error:
            events.warning("a log takes no records, since its epochs are wrong", partition=partition.name, reason=error)
        else:
            reason = f"leader epoch {latest} from offset {offset} on, where it is {leader_epoch}; it was corrected"
            events.warning("a log did not hold", partition=partition.name, reason=reason)

    def _take_roles(self, states: Mapping[str, Mapping[int, PartitionState]]) -> Steps:
        number = 0
        for name, by_index in states.items():
            topic = self._topics.by_name.get(name)
            if topic is None:
                continue  # it could not be made
            for index, state in by_index.items():
                partition = topic.replicas.get(index)
                if partition is not None:
                    self._assume(partition, topic.assignment[index], state)
                    number += 1
                    if not number % PARTITIONS_A_STEP:
                        yield None

    def _move(self, name: str, node: TopicNode) -> Steps:
        """Partitions of a topic that begin or end to be here. Their roles come with their states."""
        topic = self._topics.by_name.get(name)
        if topic is None:
            return
        own = set(self._own(node))
        new = sorted(own - topic.replicas.keys())
        topic.replicas |= yield from self._new_replicas(name, node, new, self._topic_config(topic.overrides))
        gone = [topic.replicas.pop(index) for index in sorted(topic.replicas.keys() - own)]
        topic.assignment = node.replicas
        topic.grow(node.growths)
        self._topics.changed(name)
        for part in parts_of(gone, PARTITIONS_A_STEP):
            for partition in part:
                self._retire(partition)
                self._delete_log(partition)
            yield None

    def _shrink(self, name: str, node: TopicNode) -> Steps:
        """New partitions that another broker could not make."""
        topic = self._topics.by_name.get(name)
        if topic is not None and topic.partition_count > len(node.replicas):
            yield from self._move(name, node)

    def _retire(self, partition: Partition) -> None:
        """It is no replica any more: whoever copies it, or waits for it, is told."""
        was_leader = partition.is_leader
        partition.apply(
            leader_id=NOBODY,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch + 1,
            replicas=[],
            in_sync=[],
            now_ms=self._steady_ms(),
        )
        if not was_leader:  # then they are told at the end of the round
            partition.wake_all()

    def _delete(self, name: str, topic_id: bytes) -> Steps:
        """Take a topic out of service, and its logs off the disk."""
        known = self._topics.by_name.get(name)
        if known is None or known.topic_id != topic_id:
            return  # it could not be made, or there is another of its name
        topic = self._topics.remove(name)
        for part in parts_of(topic.partitions, PARTITIONS_A_STEP):
            for partition in part:
                self._retire(partition)
                self._delete_log(partition)
            yield None
        # To free thousands at once takes a while, too. A copy: a request that goes through the others shall find all.
        partitions, topic.replicas = topic.partitions, {}
        while partitions:
            del partitions[-PARTITIONS_A_STEP:]
            yield None

    def _delete_log(self, partition: Partition) -> None:
        try:
            self._logs.delete(partition.topic, partition.index, self._clock_ms())
        except OSError as error:
            # It is out of service all the same, and the next start puts the folder aside.
            events.warning("the folder of a deleted partition stays", partition=partition.name, reason=error)

    # Settings

    def _configure(self, name: str, texts: dict[str, str]) -> Steps:
        topic = self._topics.by_name.get(name)
        if topic is None:
            return _nothing()  # it could not be made
        topic.overrides = texts
        return self._reconfigured([topic])

    def _obey(self, node_id: int | None, texts: dict[str, str]) -> Steps:
        """Topics may have other fallbacks then."""
        settings = self._settings
        if node_id is None:
            settings.set_dynamic(texts, settings.of_broker)
        elif node_id == self._node_id:
            settings.set_dynamic(settings.of_cluster, texts)
        else:
            return _nothing()
        return self._reconfigured(list(self._topics))

    def _reconfigured(self, topics: Sequence[Topic]) -> Steps:
        for number, topic in enumerate(topics):
            config = self._topic_config(topic.overrides)
            for part in parts_of(topic.partitions, PARTITIONS_A_STEP):
                for partition in part:
                    partition.reconfigure(config)
                if len(part) == PARTITIONS_A_STEP:
                    yield None
            if number % TOPICS_A_STEP == TOPICS_A_STEP - 1:
                yield None


def _nothing() -> Steps:
    return
    yield
