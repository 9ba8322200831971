"""kafka-python."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

from tests.compat.client import WAIT_S, Deadline, Fetched, Record, Refused

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that is no longer the way
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import BrokerResponseError

ACKS = {-1: "all", 0: 0, 1: 1}


class KafkaPythonClient:
    def __init__(self, bootstrap: str) -> None:
        self._common = {"bootstrap_servers": bootstrap}
        self._admin = KafkaAdminClient(**self._common)
        self._consumer = KafkaConsumer(**self._common, group_id=None, fetch_max_wait_ms=20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._consumer.close()
        self._admin.close()

    def write(self, topic: str, partition: int, records: Sequence[Record], *, codec: str, acks: int) -> None:
        options = {"acks": ACKS[acks], "compression_type": None if codec == "none" else codec, "linger_ms": 20}
        producer = KafkaProducer(**self._common, **options, enable_idempotence=False)
        try:
            sent = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    list(record.headers),
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            for future in sent:
                future.get(WAIT_S)
        except BrokerResponseError as error:
            raise Refused(error.errno) from error
        finally:
            producer.close()

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Fetched]:
        place = TopicPartition(topic, partition)
        self._consumer.assign([place])
        self._consumer.seek(place, offset)
        fetched: list[Fetched] = []
        deadline = Deadline()
        while len(fetched) < count:
            deadline.check(f"{count} records, {len(fetched)} are here")
            for found in self._consumer.poll(100, count - len(fetched)).values():
                fetched += map(_fetched, found)
        return fetched

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        return self._consumer.beginning_offsets([place])[place], self._consumer.end_offsets([place])[place]

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        place = TopicPartition(topic, partition)
        found = self._consumer.offsets_for_times({place: timestamp_ms})[place]
        return None if found is None else found.offset

    def partition_counts(self) -> dict[str, int]:
        return {topic["name"]: len(topic["partitions"]) for topic in self._admin.describe_topics()}

    def create_topic(self, topic: str, partition_count: int, configs: Mapping[str, str]) -> None:
        asked = {"num_partitions": partition_count, "replication_factor": 1, "configs": dict(configs)}
        self._ask(self._admin.create_topics, {topic: asked})

    def delete_topic(self, topic: str) -> None:
        self._ask(self._admin.delete_topics, [topic])

    def add_partitions(self, topic: str, partition_count: int) -> None:
        self._ask(self._admin.create_partitions, {topic: partition_count})

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        place = TopicPartition(topic, partition)
        return int(self._ask(self._admin.delete_records, {place: before_offset})[place]["low_watermark"])

    def topic_configs(self, topic: str) -> dict[str, str]:
        return self._configs("topic", topic)

    def broker_configs(self, node_id: int) -> dict[str, str]:
        return self._configs("broker", str(node_id))

    def _configs(self, kind: str, name: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType[kind.upper()], name)
        described = self._ask(self._admin.describe_configs, [resource], config_filter="all")
        return {key: entry["value"] for key, entry in described[kind][name].items()}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})
        answer = self._ask(self._admin.alter_configs, [resource])["topic"][topic]
        if answer != "OK":
            raise Refused(int(re.findall(r"\[Error (\d+)\]", answer)[0]))

    @staticmethod
    def _ask(function: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except BrokerResponseError as error:
            raise Refused(error.errno) from error


def _fetched(message: Any) -> Fetched:
    record = Record(message.key, message.value, message.timestamp, tuple(map(tuple, message.headers)))
    return Fetched(message.offset, record)
