"""confluent-kafka, on librdkafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from tests.compat.client import WAIT_S, Deadline, Fetched, Record, Refused


class ConfluentClient:
    def __init__(self, bootstrap: str) -> None:
        self._common: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._admin = AdminClient(self._common)
        # A group id must be given; with assign() it is not used.
        options = {"group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 20}
        self._consumer = Consumer({**self._common, **options})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._consumer.close()

    def write(self, topic: str, partition: int, records: Sequence[Record], *, codec: str, acks: int) -> None:
        options = {"acks": acks, "compression.type": codec, "enable.idempotence": False, "linger.ms": 20}
        producer = Producer({**self._common, **options})
        failures: list[KafkaError] = []
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=lambda error, _message: failures.append(error) if error else None,
            )
        unsent = producer.flush(WAIT_S)
        assert not unsent
        if failures:
            raise Refused(failures[0].code())

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Fetched]:
        self._consumer.assign([TopicPartition(topic, partition, offset)])
        fetched: list[Fetched] = []
        deadline = Deadline()
        while len(fetched) < count:
            deadline.check(f"{count} records, {len(fetched)} are here")
            for message in self._consumer.consume(count - len(fetched), 0.1):
                if (error := message.error()) is not None:
                    raise Refused(error.code())
                fetched.append(_fetched(message))
        self._consumer.unassign()
        return fetched

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), WAIT_S)
        return low, high

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        (found,) = self._consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], WAIT_S)
        return found.offset if found.offset >= 0 else None

    def partition_counts(self) -> dict[str, int]:
        topics = self._admin.list_topics(timeout=WAIT_S).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def create_topic(self, topic: str, partition_count: int, configs: Mapping[str, str]) -> None:
        _only(self._admin.create_topics([NewTopic(topic, partition_count, 1, config=dict(configs))]))

    def delete_topic(self, topic: str) -> None:
        _only(self._admin.delete_topics([topic]))

    def add_partitions(self, topic: str, partition_count: int) -> None:
        _only(self._admin.create_partitions([NewPartitions(topic, partition_count)]))

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        deleted = _only(self._admin.delete_records([TopicPartition(topic, partition, before_offset)]))
        return int(deleted.low_watermark)

    def topic_configs(self, topic: str) -> dict[str, str]:
        return self._configs(ConfigResource(ConfigResource.Type.TOPIC, topic))

    def broker_configs(self, node_id: int) -> dict[str, str]:
        return self._configs(ConfigResource(ConfigResource.Type.BROKER, str(node_id)))

    def _configs(self, resource: ConfigResource) -> dict[str, str]:
        return {name: entry.value for name, entry in _only(self._admin.describe_configs([resource])).items()}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        _only(self._admin.incremental_alter_configs([resource]))


def _only(futures: Mapping[Any, Future[Any]]) -> Any:
    (future,) = futures.values()
    try:
        return future.result(WAIT_S)
    except KafkaException as error:
        raise Refused(error.args[0].code()) from error


def _fetched(message: confluent_kafka.Message) -> Fetched:
    offset = message.offset()
    assert offset is not None
    headers: Any = message.headers() or ()
    return Fetched(
        offset,
        Record(message.key(), message.value(), message.timestamp()[1], tuple(headers)),
    )
