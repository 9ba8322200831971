"""A consumer and a transactional producer that work together, in each library."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from tests.compat.client import WAIT_S

POLL_S = 0.05
CALL_S = 10.0
OFFSETS_S = 3.0
"""After which a call counts as failed: the client may not get over what happened, another life will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """From a topic to another, by a group, under a transactional id."""

    bootstrap: str
    source: str
    target: str
    group: str
    transactional_id: str
    session_ms: int = 1_000
    most_at_once: int = 5


class TransactionalClient(Protocol):
    """Making one takes the transactional id, and with it the transactions that another life has left open."""

    def poll(self) -> list[str]: ...

    def begin(self) -> None: ...

    def produce(self, values: Sequence[str]) -> None:
        """Returns when all are acknowledged."""

    def send_offsets(self) -> None:
        """Of all that was polled."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class ConfluentTransactional:
    def __init__(self, pipeline: Pipeline) -> None:
        from confluent_kafka import Consumer, Producer

        common = {"bootstrap.servers": pipeline.bootstrap, "log_level": 0}
        self._pipeline = pipeline
        self._calls = ThreadPoolExecutor(1)
        self._producer = Producer(
            {**common, "transactional.id": pipeline.transactional_id, "transaction.timeout.ms": 20_000, "linger.ms": 0}
        )
        self._producer.init_transactions(WAIT_S)
        self._consumer = Consumer(
            {
                **common,
                "group.id": pipeline.group,
                "session.timeout.ms": pipeline.session_ms,
                "heartbeat.interval.ms": pipeline.session_ms // 4,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
            }
        )
        self._consumer.subscribe([pipeline.source])

    def poll(self) -> list[str]:
        messages: list[Any] = self._consumer.consume(self._pipeline.most_at_once, POLL_S)
        return [message.value().decode() for message in messages if message.error() is None]

    def begin(self) -> None:
        self._producer.begin_transaction()

    def produce(self, values: Sequence[str]) -> None:
        for value in values:
            self._producer.produce(self._pipeline.target, value.encode())
        assert self._producer.flush(CALL_S) == 0

    def send_offsets(self) -> None:
        """librdkafka 2.16 may wait for ever for the group's coordinator as it knew it before its broker was killed."""
        metadata = self._consumer.consumer_group_metadata()
        positions = self._consumer.position(self._consumer.assignment())
        sent = self._calls.submit(self._producer.send_offsets_to_transaction, positions, metadata, CALL_S)
        sent.result(OFFSETS_S)

    def commit(self) -> None:
        self._producer.commit_transaction(CALL_S)

    def abort(self) -> None:
        self._producer.abort_transaction(CALL_S)

    def close(self) -> None:
        self._calls.shutdown()
        self._consumer.close()


class KafkaPythonTransactional:
    def __init__(self, pipeline: Pipeline) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import kafka
        self._offset = kafka.OffsetAndMetadata
        self._pipeline = pipeline
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=pipeline.bootstrap,
            transactional_id=pipeline.transactional_id,
            transaction_timeout_ms=20_000,
        )
        self._producer.init_transactions()
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=pipeline.bootstrap,
            group_id=pipeline.group,
            session_timeout_ms=pipeline.session_ms,
            heartbeat_interval_ms=pipeline.session_ms // 4,
            max_poll_records=pipeline.most_at_once,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=20,
        )
        self._consumer.subscribe([pipeline.source])
        self._consumer.topics()  # see KafkaPythonConsumer

    def poll(self) -> list[str]:
        found = self._consumer.poll(int(POLL_S * 1000)).values()
        return [message.value.decode() for messages in found for message in messages]

    def begin(self) -> None:
        self._producer.begin_transaction()

    def produce(self, values: Sequence[str]) -> None:
        sent = [self._producer.send(self._pipeline.target, value.encode()) for value in values]
        for future in sent:
            future.get(WAIT_S)

    def send_offsets(self) -> None:
        positions = {place: self._consumer.position(place) for place in self._consumer.assignment()}
        offsets = {place: self._offset(position, "", -1) for place, position in positions.items()}
        self._producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._consumer.close(autocommit=False)
        self._producer.close(timeout=0)


class AiokafkaTransactional:
    """Its loop has a thread, so that it works while nobody calls."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._producer: Any
        self._consumer: Any
        self._producer, self._consumer = self._run(self._start(pipeline))

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    async def _start(self, pipeline: Pipeline) -> tuple[object, object]:
        import aiokafka

        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=pipeline.bootstrap,
            transactional_id=pipeline.transactional_id,
            transaction_timeout_ms=20_000,
        )
        await producer.start()
        consumer = aiokafka.AIOKafkaConsumer(
            pipeline.source,
            bootstrap_servers=pipeline.bootstrap,
            group_id=pipeline.group,
            session_timeout_ms=pipeline.session_ms,
            heartbeat_interval_ms=pipeline.session_ms // 4,
            max_poll_records=pipeline.most_at_once,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=20,
        )
        await consumer.start()
        return producer, consumer

    def poll(self) -> list[str]:
        found = self._run(self._consumer.getmany(timeout_ms=int(POLL_S * 1000))).values()
        return [message.value.decode() for messages in found for message in messages]

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def produce(self, values: Sequence[str]) -> None:
        async def send_all() -> None:
            await asyncio.gather(
                *[await self._producer.send(self._pipeline.target, value.encode()) for value in values]
            )

        self._run(send_all())

    def send_offsets(self) -> None:
        async def send() -> None:
            offsets = {place: await self._consumer.position(place) for place in self._consumer.assignment()}
            await self._producer.send_offsets_to_transaction(offsets, self._pipeline.group)

        self._run(send())

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._consumer.stop())
        self._run(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()


TRANSACTIONAL: dict[str, Callable[[Pipeline], TransactionalClient]] = {
    "confluent-kafka": ConfluentTransactional,
    "kafka-python": KafkaPythonTransactional,
    "aiokafka": AiokafkaTransactional,
}
