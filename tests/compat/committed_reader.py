"""What a topic and a group hold, for a reader of what is committed."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.compat.client import WAIT_S, Deadline


class CommittedReader:
    """Reads partition 0 of topics. It has to wait for transactions that are not decided yet."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def values(self, topic: str, isolation: str = "read_committed") -> list[str]:
        """All of them, up to the end of the log."""
        consumer = self._consumer("unused", isolation)
        whole = self._consumer("unused", "read_uncommitted")  # the other one is told of the end of what is decided
        place = TopicPartition(topic, 0, 0)
        deadline = Deadline()
        try:
            consumer.assign([place])
            values: list[str] = []
            while True:
                deadline.check(f"the end of {topic}; {len(values)} values are here")
                for message in consumer.consume(100, 0.1):
                    error: Any = message.error()
                    if error is None:
                        value = message.value()
                        assert value is not None
                        values.append(value.decode())
                    elif error.code() == KafkaError._PARTITION_EOF:
                        if message.offset() == whole.get_watermark_offsets(place, WAIT_S)[1]:
                            return values
                        consumer.seek(TopicPartition(topic, 0, message.offset() or 0))
        finally:
            consumer.close()
            whole.close()

    def group_offset(self, group: str, topic: str) -> int:
        """Where the group is, once that is decided, and the coordinator is there."""
        consumer = self._consumer(group, "read_committed")
        deadline = Deadline()
        try:
            while True:
                try:
                    [committed] = consumer.committed([TopicPartition(topic, 0)], WAIT_S)
                    return int(committed.offset)
                except KafkaException as error:
                    deadline.check(f"the offset of {group}: {error}")
                    if error.args[0].code() not in (
                        KafkaError.NOT_COORDINATOR,
                        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
                    ):
                        raise
        finally:
            consumer.close()

    def _consumer(self, group: str, isolation: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )
