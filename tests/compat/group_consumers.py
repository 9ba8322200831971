"""A member of a group, in each library: polls, commits, and tells of what it is given and what is taken from it."""

from __future__ import annotations

import asyncio
import re
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Place: TypeAlias = tuple[str, int]
Delivered: TypeAlias = tuple[str, int, int, str]
"""Topic, partition, offset and value."""
Told: TypeAlias = Callable[[str, list[Place]], None]
"""Hears "assigned" or "revoked", and which partitions."""

METADATA_MS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """How a member is to join. Times are long unless a test is about them."""

    bootstrap: str
    group: str
    topics: list[str]
    pattern: str | None = None
    protocol: str = "classic"
    assignor: str = "range"
    instance: str | None = None
    session_ms: int = 30_000
    poll_interval_ms: int = 60_000
    poll_ms: int = 50

    @property
    def heartbeat_ms(self) -> int:
        return min(self.session_ms // 4, 300)


class GroupConsumer(Protocol):
    def poll(self) -> list[Delivered]: ...

    def commit(self) -> None:
        """The position of all partitions, and wait until it is acknowledged."""

    def close(self) -> None:
        """Leave, without a commit."""


class ConfluentConsumer:
    def __init__(self, membership: Membership, told: Told) -> None:
        from confluent_kafka import Consumer

        self._poll_ms = membership.poll_ms
        options: dict[str, Any] = {
            "bootstrap.servers": membership.bootstrap,
            "group.id": membership.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            "topic.metadata.refresh.interval.ms": METADATA_MS,
            "group.protocol": membership.protocol,
            "max.poll.interval.ms": membership.poll_interval_ms,
            "log_level": 0,
        }
        if membership.protocol == "classic":
            options["partition.assignment.strategy"] = membership.assignor
            options["session.timeout.ms"] = membership.session_ms
            options["heartbeat.interval.ms"] = membership.heartbeat_ms
            # librdkafka wants the one within the other, also where only the session is short
            options["max.poll.interval.ms"] = max(membership.poll_interval_ms, membership.session_ms)
        if membership.instance is not None:
            options["group.instance.id"] = membership.instance
        self._consumer = Consumer(options)

        def tell(what: str) -> Callable[[Any, Any], None]:
            return lambda _consumer, places: told(what, [(place.topic, place.partition) for place in places])

        topics = membership.topics if membership.pattern is None else [f"^{membership.pattern}"]
        self._consumer.subscribe(topics, on_assign=tell("assigned"), on_revoke=tell("revoked"))

    def poll(self) -> list[Delivered]:
        messages: list[Any] = [
            message for message in self._consumer.consume(100, self._poll_ms / 1000) if message.error() is None
        ]
        return [(each.topic(), each.partition(), each.offset(), each.value().decode()) for each in messages]

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonConsumer:
    """kafka-python 3.0 forgets a rebalance that new metadata asked for, if its poll ends in the midst of it.

    So it has the metadata before it joins; a test that changes topics must let it poll for long. And if its poll ends
    before the committed offsets have come, it keeps that answer for when it next owns just these partitions, however
    much later: a member must have been given records before a test takes its partitions away.
    """

    def __init__(self, membership: Membership, told: Told) -> None:
        self._poll_ms = membership.poll_ms
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import kafka
            from kafka.consumer.subscription_state import ConsumerRebalanceListener
            from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
            from kafka.coordinator.assignors.range import RangePartitionAssignor
        assignors = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                told("assigned", _places(assigned))

            def on_partitions_revoked(self, revoked: Any) -> None:
                told("revoked", _places(revoked))

            def on_partitions_lost(self, lost: Any) -> None:
                told("revoked", _places(lost))

        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=membership.bootstrap,
            group_id=membership.group,
            group_instance_id=membership.instance,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=20,
            metadata_max_age_ms=METADATA_MS,
            session_timeout_ms=membership.session_ms,
            heartbeat_interval_ms=membership.heartbeat_ms,
            max_poll_interval_ms=membership.poll_interval_ms,
            partition_assignment_strategy=[assignors[membership.assignor]],
        )
        topics = membership.topics if membership.pattern is None else ()
        self._consumer.subscribe(topics=topics, pattern=membership.pattern, listener=Listener())
        self._consumer.topics()

    def poll(self) -> list[Delivered]:
        found = self._consumer.poll(self._poll_ms).values()
        return [_delivered(message) for messages in found for message in messages]

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class AiokafkaConsumer:
    """Its loop has a thread, so that it sends heartbeats while nobody polls."""

    def __init__(self, membership: Membership, told: Told) -> None:
        self._poll_ms = membership.poll_ms
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._consumer: Any = self._run(self._start(membership, told))

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self, membership: Membership, told: Told) -> object:
        import aiokafka

        class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                told("assigned", _places(assigned))

            def on_partitions_revoked(self, revoked: Any) -> None:
                told("revoked", _places(revoked))

        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=membership.bootstrap,
            group_id=membership.group,
            group_instance_id=membership.instance,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=20,
            metadata_max_age_ms=METADATA_MS,
            session_timeout_ms=membership.session_ms,
            heartbeat_interval_ms=membership.heartbeat_ms,
            max_poll_interval_ms=membership.poll_interval_ms,
            rebalance_timeout_ms=membership.poll_interval_ms,
        )
        if membership.pattern is None:
            consumer.subscribe(topics=membership.topics, listener=Listener())
        else:
            consumer.subscribe(pattern=re.compile(membership.pattern).pattern, listener=Listener())
        await consumer.start()
        return consumer

    def poll(self) -> list[Delivered]:
        found = self._run(self._consumer.getmany(timeout_ms=self._poll_ms)).values()
        return [_delivered(message) for messages in found for message in messages]

    def commit(self) -> None:
        self._run(self._consumer.commit())

    def close(self) -> None:
        self._run(self._consumer.stop())


def _places(partitions: Iterable[Any]) -> list[Place]:
    return [(partition.topic, partition.partition) for partition in partitions]


def _delivered(message: Any) -> Delivered:
    return message.topic, message.partition, message.offset, message.value.decode()


CONSUMERS: dict[str, Callable[[Membership, Told], GroupConsumer]] = {
    "confluent-kafka": ConfluentConsumer,
    "kafka-python": KafkaPythonConsumer,
    "aiokafka": AiokafkaConsumer,
}
