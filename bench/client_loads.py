"""One client doing one thing, in a process of its own: `python -m bench.client_loads WAY BOOTSTRAP TOPIC BYTES COUNT`.

Prints seconds, CPU seconds and the peak of memory as JSON. The clock starts when the client is connected, and stops
when the last record is acknowledged or handed out. All write to and read from one partition, with acks=1, without
compression and without idempotence. Who gets objects looks at the value of each. Where a client has settings that
make it faster at this than its defaults do, it has them.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

BATCH_RECORDS = 10_000
CONSUME_AT_ONCE = 5_000
FETCH_BYTES = 2 << 20  # of one partition, for all
WAIT_SECONDS = 60
DIFFERENT_VALUES = 1_000


@dataclass(frozen=True, slots=True)
class Task:
    bootstrap: str
    topic: str
    value_bytes: int
    count: int

    def values(self, count: int) -> list[bytes]:
        different = [(b"%08d" % number * (self.value_bytes // 8 + 1)) for number in range(DIFFERENT_VALUES)]
        return [value[: self.value_bytes] for value in islice(cycle(different), count)]


class Clock:
    """Wall and CPU time of what is inside `running`."""

    seconds = 0.0
    cpu_seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        started, cpu = time.perf_counter(), time.process_time()
        yield
        self.seconds = time.perf_counter() - started
        self.cpu_seconds = time.process_time() - cpu


def expect(count: int, wanted: int) -> None:
    if count < wanted:
        raise RuntimeError(f"{count} of {wanted} records")


# Ottla's


def _ottla_producer(task: Task) -> Any:
    from ottla.client import Producer

    return Producer(task.bootstrap, acks="1")


def ottla_send(task: Task, clock: Clock) -> None:
    values = task.values(DIFFERENT_VALUES)
    with _ottla_producer(task) as producer:
        producer.send(task.topic, b"first").result()
        with clock.running():
            for _ in range(task.count // DIFFERENT_VALUES):
                for value in values:
                    producer.send(task.topic, value)
            producer.flush()


def _send_many(task: Task, clock: Clock, records: Any) -> None:
    with _ottla_producer(task) as producer:
        producer.send(task.topic, b"first").result()
        with clock.running():
            for _ in range(task.count // BATCH_RECORDS):
                producer.send_many(task.topic, records)


def ottla_send_many(task: Task, clock: Clock) -> None:
    _send_many(task, clock, task.values(BATCH_RECORDS))


def ottla_send_arrow(task: Task, clock: Clock) -> None:
    import pyarrow as pa

    _send_many(task, clock, pa.table({"value": pa.array(task.values(BATCH_RECORDS), pa.binary())}))


@contextmanager
def _ottla_consumer(task: Task) -> Iterator[Any]:
    from ottla.client import Consumer, TopicPartition

    with Consumer(task.bootstrap, group=None, partition_bytes=FETCH_BYTES) as consumer:
        consumer.assign([TopicPartition(task.topic, 0)])
        yield consumer


def ottla_messages(task: Task, clock: Clock) -> None:
    with _ottla_consumer(task) as consumer, clock.running():
        for got, message in enumerate(consumer, 1):
            message.value  # noqa: B018 - as a user would
            if got == task.count:
                return


def ottla_batches(task: Task, clock: Clock) -> None:
    got = 0
    with _ottla_consumer(task) as consumer, clock.running():
        for batch in consumer.batches():
            for record in batch.records:
                record.value  # noqa: B018 - as a user would
            got += len(batch.records)
            if got >= task.count:
                return


def ottla_arrow(task: Task, clock: Clock) -> None:
    import pyarrow as pa  # before the clock runs

    assert pa
    got = 0
    with _ottla_consumer(task) as consumer, clock.running():
        for batch in consumer.arrow_batches():
            got += batch.num_rows
            if got >= task.count:
                return


# confluent-kafka


def confluent_produce(task: Task, clock: Clock) -> None:
    from confluent_kafka import Producer

    values = task.values(DIFFERENT_VALUES)
    producer = Producer(
        {
            "bootstrap.servers": task.bootstrap,
            "acks": "1",
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    producer.produce(task.topic, b"first", partition=0)
    producer.flush(WAIT_SECONDS)
    with clock.running():
        for _ in range(task.count // DIFFERENT_VALUES):
            for value in values:
                while True:
                    try:
                        producer.produce(task.topic, value, partition=0)
                        break
                    except BufferError:
                        producer.poll(0.01)
        left = producer.flush(WAIT_SECONDS)
    expect(task.count - left, task.count)


def _confluent_consumer(task: Task) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": FETCH_BYTES,
            "fetch.queue.backoff.ms": 1,  # else it rests for a second whenever it has fetched enough
        }
    )
    consumer.list_topics(task.topic, WAIT_SECONDS)
    consumer.assign([TopicPartition(task.topic, 0, 0)])
    return consumer


def confluent_poll(task: Task, clock: Clock) -> None:
    consumer = _confluent_consumer(task)
    with clock.running():
        for got in range(task.count):
            message = consumer.poll(WAIT_SECONDS)
            if message is None:
                expect(got, task.count)
            message.value()
    consumer.close()


def confluent_consume(task: Task, clock: Clock) -> None:
    consumer = _confluent_consumer(task)
    got = 0
    with clock.running():
        while got < task.count:
            messages = consumer.consume(CONSUME_AT_ONCE, WAIT_SECONDS)
            if not messages:
                expect(got, task.count)
            for message in messages:
                message.value()
            got += len(messages)
    consumer.close()


# kafka-python


def kafka_python_send(task: Task, clock: Clock) -> None:
    from kafka import KafkaProducer

    values = task.values(DIFFERENT_VALUES)
    producer = KafkaProducer(
        bootstrap_servers=task.bootstrap, acks=1, enable_idempotence=False, linger_ms=5, batch_size=512 * 1024
    )
    producer.send(task.topic, b"first", partition=0).get(WAIT_SECONDS)
    with clock.running():
        for _ in range(task.count // DIFFERENT_VALUES):
            for value in values:
                producer.send(task.topic, value, partition=0)
        producer.flush(WAIT_SECONDS)
    producer.close()


def _kafka_python_consumer(task: Task) -> Any:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=task.bootstrap,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=FETCH_BYTES,
    )
    place = TopicPartition(task.topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    return consumer


def kafka_python_messages(task: Task, clock: Clock) -> None:
    consumer = _kafka_python_consumer(task)
    with clock.running():
        for got, message in enumerate(consumer, 1):
            message.value  # noqa: B018 - as a user would
            if got == task.count:
                break
    consumer.close()


def kafka_python_poll(task: Task, clock: Clock) -> None:
    consumer = _kafka_python_consumer(task)
    got = 0
    with clock.running():
        while got < task.count:
            for messages in consumer.poll(1_000, max_records=CONSUME_AT_ONCE).values():
                for message in messages:
                    message.value  # noqa: B018 - as a user would
                got += len(messages)
    consumer.close()


# aiokafka


def aiokafka_send(task: Task, clock: Clock) -> None:
    async def run() -> None:
        from aiokafka import AIOKafkaProducer

        values = task.values(DIFFERENT_VALUES)
        producer = AIOKafkaProducer(bootstrap_servers=task.bootstrap, acks=1, linger_ms=5, max_batch_size=512 * 1024)
        await producer.start()
        await producer.send_and_wait(task.topic, b"first", partition=0)
        with clock.running():
            for _ in range(task.count // DIFFERENT_VALUES):
                for value in values:
                    await producer.send(task.topic, value, partition=0)
            await producer.flush()
        await producer.stop()

    asyncio.run(run())


def _aiokafka_consume(task: Task, clock: Clock, read: Callable[[Any], Any]) -> None:
    async def run() -> None:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(bootstrap_servers=task.bootstrap, max_partition_fetch_bytes=FETCH_BYTES)
        await consumer.start()
        place = TopicPartition(task.topic, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        with clock.running():
            await read(consumer)
        await consumer.stop()

    asyncio.run(run())


def aiokafka_getone(task: Task, clock: Clock) -> None:
    async def read(consumer: Any) -> None:
        for _ in range(task.count):
            await consumer.getone()

    _aiokafka_consume(task, clock, read)


def aiokafka_getmany(task: Task, clock: Clock) -> None:
    async def read(consumer: Any) -> None:
        got = 0
        while got < task.count:
            for messages in (await consumer.getmany(timeout_ms=1_000, max_records=CONSUME_AT_ONCE)).values():
                for message in messages:
                    message.value  # noqa: B018 - as a user would
                got += len(messages)

    _aiokafka_consume(task, clock, read)


WAYS: dict[str, Callable[[Task, Clock], None]] = {
    way.__name__: way
    for way in (
        ottla_send,
        ottla_send_many,
        ottla_send_arrow,
        ottla_messages,
        ottla_batches,
        ottla_arrow,
        confluent_produce,
        confluent_poll,
        confluent_consume,
        kafka_python_send,
        kafka_python_messages,
        kafka_python_poll,
        aiokafka_send,
        aiokafka_getone,
        aiokafka_getmany,
    )
}


def main() -> None:
    way, bootstrap, topic, value_bytes, count = sys.argv[1:]
    clock = Clock()
    WAYS[way](Task(bootstrap, topic, int(value_bytes), int(count)), clock)
    memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": clock.seconds, "cpu_seconds": clock.cpu_seconds, "memory_bytes": memory_bytes}))


if __name__ == "__main__":
    main()
