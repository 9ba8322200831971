"""The coordinator of groups on this broker."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinators.coordinator import Coordinator, coordinator_topic
from ottla.broker.loop.slices import Future, StepResult
from ottla.controller.topic_names import OFFSETS_TOPIC
from ottla.coordinator.group import Client, GroupSettings
from ottla.coordinator.group_machine import GroupMachine
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.config.definitions import BrokerConfig
    from ottla.broker.dispatch import Context
    from ottla.replica.partition import Partition


ANSWERS_AT_ONCE = 1000


class Groups(Coordinator[GroupMachine]):
    def __init__(self, broker: Broker) -> None:
        super().__init__(
            broker,
            OFFSETS_TOPIC,
            self._make_machine,
            self._topic,
            linger_ms=lambda: broker.settings.config.group_coordinator_append_linger_ms,
        )
        self._config: BrokerConfig | None = None
        self._group_settings = GroupSettings()
        self._changed_topics: set[str] = set()
        broker.topics.watch(self._topic_changed)

    def group_settings(self) -> GroupSettings:
        """Those of the moment."""
        config = self.broker.settings.config
        if config is not self._config:
            self._config, self._group_settings = config, settings_of(config)
        return self._group_settings

    def _make_machine(self, partition: Partition) -> GroupMachine:
        return GroupMachine(
            self.broker.topics,
            self.group_settings,
            consumer_settings=self.broker.group_configs.consumer_settings,
        )

    def _topic_changed(self, name: str) -> None:
        """Tell the machines of all that changed in this round of the loop at once."""
        if not self._changed_topics:
            self.broker.loop.call_soon(self._tell_machines)
        self._changed_topics.add(name)

    def _tell_machines(self) -> None:
        names, self._changed_topics = self._changed_topics, set()
        for shard in self.shards():
            machine = shard.machine
            shard.run(lambda operation, machine=machine: machine.topics_changed(operation, names))  # type: ignore[misc]

    def ask_each(
        self,
        names: Sequence[str],
        event: Callable[[GroupMachine, Operation, Reply, int], None],
        refusal: Callable[[int, ErrorCode], Any],
    ) -> Generator[StepResult, None, list[Any]]:
        """Ask several groups, each by its place among the names, one a step; their answers in that order."""
        futures: list[Future[Any]] = []
        for place, name in enumerate(names):
            future: Future[Any] = Future()
            futures.append(future)
            reply = Reply(future.set, functools.partial(refusal, place))
            self.submit(name, reply, functools.partial(_event_at, event, reply, place))
            yield None
        answers = []
        for number, future in enumerate(futures, start=1):
            if not future.is_set:
                yield from future.wait()
            elif not number % ANSWERS_AT_ONCE:
                yield None
            answers.append(future.value)
        return answers

    def _topic(self) -> CreatableTopic:
        config = self.broker.settings.config
        return coordinator_topic(
            OFFSETS_TOPIC,
            config.offsets_topic_num_partitions,
            min(config.offsets_topic_replication_factor, len(self.broker.cluster.usable)),
            cleanup_policy="compact",
            compression_type="producer",
            segment_bytes=str(config.offsets_topic_segment_bytes),
        )


def serves_consumer_groups(broker: Broker) -> bool:
    return "consumer" in broker.settings.config.group_coordinator_rebalance_protocols


def client_of(context: Context) -> Client:
    return Client(context.client_id, f"/{context.connection.address}")


def _event_at(
    event: Callable[[GroupMachine, Operation, Reply, int], None],
    reply: Reply,
    place: int,
    machine: GroupMachine,
    operation: Operation,
) -> None:
    event(machine, operation, reply, place)


def settings_of(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
    )
