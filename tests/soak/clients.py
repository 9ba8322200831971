"""The soak's own clients, beside those of the checker: other libraries, and an administrator who never rests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from tests.checker.clients import CALL_S, PARTITIONS, PAUSE_S, ROLES, Context, main, note_poll
from tests.checker.history import Isolation, Outcome, Place, Positioned, SendEnded, SendInvoked

OTHERS = "others"
CHURNED = "churned"
CLOSE_S = 3.0


def _sent(context: Context, place: Place, value: str) -> None:
    context.history.add(SendInvoked, place=place, value=value)


def _ended(context: Context, value: str, offset: int | None) -> None:
    outcome = Outcome.UNKNOWN if offset is None else Outcome.OK
    context.history.add(SendEnded, value=value, outcome=outcome, offset=-1 if offset is None else offset)


def kafka_python(context: Context) -> None:
    """Writes one record after the other, and reads all of what is committed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    common = {"bootstrap_servers": context.bootstrap}
    producer = KafkaProducer(**common, acks="all", enable_idempotence=True)
    consumer = KafkaConsumer(**common, group_id=None, isolation_level="read_committed", fetch_max_wait_ms=50)
    places = [TopicPartition(OTHERS, partition) for partition in range(PARTITIONS)]
    consumer.assign(places)
    for place in places:
        consumer.seek(place, 0)
        context.history.add(Positioned, place=Place(*place), offset=0)
    number = 0
    while context.is_wanted():
        place = Place(OTHERS, context.random.randrange(PARTITIONS))
        value = f"{context.name}:{number}"
        number += 1
        _sent(context, place, value)
        future = producer.send(OTHERS, value.encode(), partition=place.partition)
        try:
            _ended(context, value, future.get(CALL_S).offset)
        except Exception:
            _ended(context, value, None)
            raise
        for found, records in consumer.poll(timeout_ms=5).items():
            noted = [(record.offset, record.value.decode()) for record in records]
            note_poll(context.history, Place(*found), Isolation.COMMITTED, noted)
        time.sleep(PAUSE_S)


async def _aiokafka(context: Context) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    producer = AIOKafkaProducer(bootstrap_servers=context.bootstrap, enable_idempotence=True)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=context.bootstrap, group_id=None, isolation_level="read_committed", fetch_max_wait_ms=50
    )
    await producer.start()
    await consumer.start()
    places = [TopicPartition(OTHERS, partition) for partition in range(PARTITIONS)]
    consumer.assign(places)
    for place in places:
        consumer.seek(place, 0)
        context.history.add(Positioned, place=Place(*place), offset=0)
    number = 0
    while context.is_wanted():
        place = Place(OTHERS, context.random.randrange(PARTITIONS))
        value = f"{context.name}:{number}"
        number += 1
        _sent(context, place, value)
        try:
            sent = await producer.send_and_wait(OTHERS, value.encode(), partition=place.partition)
            _ended(context, value, sent.offset)
        except Exception:
            _ended(context, value, None)
            raise
        for found, records in (await consumer.getmany(timeout_ms=5)).items():
            noted = [(record.offset, record.value.decode()) for record in records]
            note_poll(context.history, Place(found.topic, found.partition), Isolation.COMMITTED, noted)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(producer.stop(), CLOSE_S)


def aiokafka(context: Context) -> None:
    asyncio.run(_aiokafka(context))


def ottla_client(context: Context) -> None:
    """Writes, and reads in a group of the new protocol, of which it is the only member."""
    from ottla.client import Consumer, Producer

    group = f"ottla-{context.name}"
    with (
        Producer(context.bootstrap) as producer,
        Consumer(context.bootstrap, OTHERS, group=group, group_protocol="consumer") as consumer,
    ):
        number = 0
        while context.is_wanted():
            place = Place(OTHERS, context.random.randrange(PARTITIONS))
            value = f"{context.name}:{number}"
            number += 1
            _sent(context, place, value)
            try:
                _ended(
                    context,
                    value,
                    producer.send(OTHERS, value.encode(), partition=place.partition).result(CALL_S).offset,
                )
            except Exception:
                _ended(context, value, None)
                raise
            consumer.poll(5)


def administer(context: Context) -> None:
    """Topics that come, grow, are written to, lose what is old, and go; groups and quotas that are looked at."""
    from ottla.client import Admin, ConfigChange, ConfigOperation, NewTopic, Producer, Resource, ResourceKind

    configs = {"retention.ms": "500", "segment.ms": "200", "file.delete.delay.ms": "100"}
    with Admin(context.bootstrap) as admin, Producer(context.bootstrap) as producer:
        number = 0
        while context.is_wanted():
            name = f"{CHURNED}-{context.name}-{number}"
            number += 1
            admin.create_topics([NewTopic(name, 1, 1, configs)])
            producer.send_many(name, [bytes(1000)] * 200)
            admin.expand_topics({name: 3})
            change = ConfigChange("retention.bytes", ConfigOperation.SET, "10000")
            admin.alter_configs(Resource(ResourceKind.TOPIC, name), [change])
            producer.send_many(name, [bytes(1000)] * 200)
            admin.list_topics()
            admin.list_groups()
            time.sleep(context.random.uniform(0.1, 1.0))
            admin.delete_topics([name])


SOAK_ROLES: dict[str, Callable[[Context], Any]] = {
    **ROLES,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "ottla-client": ottla_client,
    "administrator": administer,
}


if __name__ == "__main__":
    logging.disable()  # that the broker is away now and then is known
    main(SOAK_ROLES, *sys.argv[1:])
