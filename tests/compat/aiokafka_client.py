"""aiokafka, on an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Self, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from tests.compat.client import WAIT_S, Deadline, Fetched, Record, Refused

ACKS = {-1: "all", 0: 0, 1: 1}
Answer = TypeVar("Answer")


class AiokafkaClient:
    def __init__(self, bootstrap: str) -> None:
        self._common = {"bootstrap_servers": bootstrap}
        self._runner = asyncio.Runner()
        self._admin: Any
        self._consumer: Any
        self._admin, self._consumer = self._runner.run(self._start())

    async def _start(self) -> tuple[object, object]:
        admin = AIOKafkaAdminClient(**self._common)
        consumer = AIOKafkaConsumer(**self._common, group_id=None, fetch_max_wait_ms=20)
        await admin.start()
        await consumer.start()
        return admin, consumer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._run(self._consumer.stop())
        self._run(self._admin.close())
        self._runner.close()

    def _run(self, work: Awaitable[Answer]) -> Answer:
        async def within_time() -> Answer:
            return await asyncio.wait_for(work, WAIT_S)

        try:
            return self._runner.run(within_time())
        except KafkaError as error:
            raise Refused(getattr(error, "errno", -1)) from error

    def write(self, topic: str, partition: int, records: Sequence[Record], *, codec: str, acks: int) -> None:
        self._run(self._write(topic, partition, records, codec, acks))

    async def _write(self, topic: str, partition: int, records: Sequence[Record], codec: str, acks: int) -> None:
        compression = None if codec == "none" else codec
        producer: Any = AIOKafkaProducer(
            **self._common, acks=ACKS[acks], compression_type=compression, linger_ms=20, enable_idempotence=False
        )
        async with producer:
            sent = [
                await producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition,
                    timestamp_ms=record.timestamp_ms,
                    headers=list(record.headers),
                )
                for record in records
            ]
            await asyncio.gather(*sent)

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Fetched]:
        return self._run(self._read(TopicPartition(topic, partition), offset, count))

    async def _read(self, place: TopicPartition, offset: int, count: int) -> list[Fetched]:
        self._consumer.assign([place])
        self._consumer.seek(place, offset)
        fetched: list[Fetched] = []
        deadline = Deadline()
        while len(fetched) < count:
            deadline.check(f"{count} records, {len(fetched)} are here")
            found = await self._consumer.getmany(timeout_ms=100, max_records=count - len(fetched))
            for messages in found.values():
                fetched += map(_fetched, messages)
        return fetched

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        first = self._run(self._consumer.beginning_offsets([place]))
        end = self._run(self._consumer.end_offsets([place]))
        return first[place], end[place]

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        place = TopicPartition(topic, partition)
        found = self._run(self._consumer.offsets_for_times({place: timestamp_ms}))[place]
        return None if found is None else found.offset

    def partition_counts(self) -> dict[str, int]:
        return {topic["topic"]: len(topic["partitions"]) for topic in self._run(self._admin.describe_topics())}

    def create_topic(self, topic: str, partition_count: int, configs: Mapping[str, str]) -> None:
        asked = NewTopic(topic, partition_count, 1, topic_configs=dict(configs))
        _check(self._run(self._admin.create_topics([asked])).topic_errors)

    def delete_topic(self, topic: str) -> None:
        _check(self._run(self._admin.delete_topics([topic])).topic_error_codes)

    def add_partitions(self, topic: str, partition_count: int) -> None:
        asked = {topic: NewPartitions(partition_count)}
        _check(self._run(self._admin.create_partitions(asked)).topic_errors)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        place = TopicPartition(topic, partition)
        return int(self._run(self._admin.delete_records({place: RecordsToDelete(before_offset)}))[place])

    def topic_configs(self, topic: str) -> dict[str, str]:
        return self._configs(ConfigResource(ConfigResourceType.TOPIC, topic))

    def broker_configs(self, node_id: int) -> dict[str, str]:
        return self._configs(ConfigResource(ConfigResourceType.BROKER, str(node_id)))

    def _configs(self, resource: ConfigResource) -> dict[str, str]:
        (answer,) = self._run(self._admin.describe_configs([resource]))
        ((code, _message, _kind, _name, entries),) = answer.resources
        _check([(_name, code)])
        return {entry[0]: entry[1] for entry in entries}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})
        (answer,) = self._run(self._admin.alter_configs([resource]))
        _check([(entry[3], entry[0]) for entry in answer.resources])


def _check(answers: Sequence[Sequence[Any]]) -> None:
    """Each answer begins with a name and an error code."""
    for _name, code, *_rest in answers:
        if code:
            raise Refused(code)


def _fetched(message: Any) -> Fetched:
    return Fetched(message.offset, Record(message.key, message.value, message.timestamp, tuple(message.headers)))
