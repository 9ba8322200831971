"""Transactions of every make: each input comes out once, whoever dies, and whoever is late is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import KafkaException, Message, Producer

from tests.compat.client import WAIT_S
from tests.compat.committed_reader import CommittedReader
from tests.compat.confluent_client import ConfluentClient
from tests.compat.killable import KillableBroker
from tests.compat.numbered_topic import NumberedTopic
from tests.compat.reporting_process import eventually
from tests.compat.transactional_clients import TRANSACTIONAL, Pipeline, TransactionalClient
from tests.compat.transformer import Before, Transformer, transformed

IN_FLIGHT_S = 0.2
"""Time for a request to get from a client into the socket of a broker that is held."""


@pytest.fixture
def source(writer: ConfluentClient, topic: str) -> NumberedTopic:
    return NumberedTopic(writer, topic, 1)


@pytest.fixture
def pipeline(killable: KillableBroker, writer: ConfluentClient, source: NumberedTopic) -> Pipeline:
    target = f"{source.name}-target"
    writer.create_topic(target, 1, {})
    return Pipeline(
        bootstrap=killable.bootstrap,
        source=source.name,
        target=target,
        group=f"group-{source.name}",
        transactional_id=f"id-{source.name}",
    )


@pytest.fixture
def reader(killable: KillableBroker) -> CommittedReader:
    return CommittedReader(killable.bootstrap)


Start = Callable[..., Transformer]


@pytest.fixture
def start(pipeline: Pipeline) -> Iterator[Start]:
    """Starts a transformer, which ends with the test."""
    with ExitStack() as stack:
        yield lambda library, stop_before=Before.NOTHING: stack.enter_context(
            Transformer(library, pipeline, stop_before)
        )


@pytest.fixture
def connect(library: str, pipeline: Pipeline) -> Iterator[Callable[[], TransactionalClient]]:
    """Makes a client in this process, which closes with the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(TRANSACTIONAL[library](pipeline)))


@pytest.fixture(params=TRANSACTIONAL)
def library(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def all_came_out_once(
    transformer: Transformer, reader: CommittedReader, pipeline: Pipeline, source: NumberedTopic
) -> None:
    count = len(source.values)
    eventually(lambda: reader.group_offset(pipeline.group, source.name) == count, lambda: transformer.lines)
    assert reader.values(pipeline.target) == [transformed(value) for value in source.values]


def test_each_input_comes_out_once_though_every_life_ends_at_another_step(
    library: str,
    killable: KillableBroker,
    pipeline: Pipeline,
    source: NumberedTopic,
    reader: CommittedReader,
    start: Start,
) -> None:
    source.write(80)
    for step in (Before.BEGIN, Before.PRODUCE, Before.OFFSETS, Before.COMMIT):
        victim = start(library, step)
        victim.wait_for("stopped")
        victim.kill()
    sender = start(library, Before.COMMIT)
    sender.wait_for("stopped")
    killable.hold()
    try:
        sender.go_on()
        sender.wait_for("goes on")
        time.sleep(IN_FLIGHT_S)
        sender.kill()
    finally:
        killable.release()
    all_came_out_once(start(library), reader, pipeline, source)


@pytest.mark.parametrize(
    ("library", "step"),
    [
        ("confluent-kafka", Before.PRODUCE),
        ("confluent-kafka", Before.COMMIT),
        ("kafka-python", Before.OFFSETS),
        ("kafka-python", Before.COMMIT),
        ("aiokafka", Before.PRODUCE),
        ("aiokafka", Before.OFFSETS),
    ],
)
def test_each_input_comes_out_once_though_the_broker_is_killed(
    library: str, step: Before, killable: KillableBroker, pipeline: Pipeline, source: NumberedTopic,
    reader: CommittedReader, start: Start,
) -> None:  # fmt: skip
    """With the request of the step in its socket, or taken and not answered."""
    source.write(20)
    transformer = start(library, step)
    transformer.wait_for("stopped")
    killable.hold()
    transformer.go_on()
    transformer.wait_for("goes on")
    time.sleep(IN_FLIGHT_S)
    killable.restart()
    all_came_out_once(transformer, reader, pipeline, source)


def test_what_is_aborted_is_not_seen_and_its_offsets_do_not_count(
    connect: Callable[[], TransactionalClient], pipeline: Pipeline, source: NumberedTopic, reader: CommittedReader
) -> None:
    values = source.write(3)
    client = connect()
    polled: list[str] = []
    while len(polled) < 3:
        polled += client.poll()
    client.begin()
    client.produce(polled)
    client.send_offsets()
    client.abort()
    assert reader.values(pipeline.target) == []
    assert reader.values(pipeline.target, "read_uncommitted") == values
    assert reader.group_offset(pipeline.group, source.name) < 0
    client.begin()
    client.produce(["after"])
    client.send_offsets()
    client.commit()
    assert reader.values(pipeline.target) == ["after"]
    assert reader.group_offset(pipeline.group, source.name) == 3


def test_a_zombie_is_fenced_by_a_second_instance(
    connect: Callable[[], TransactionalClient], pipeline: Pipeline, reader: CommittedReader
) -> None:
    zombie = connect()
    zombie.begin()
    zombie.produce(["of the zombie"])
    heir = connect()
    heir.begin()
    heir.produce(["of the heir"])
    with pytest.raises(Exception, match=r"(?i)fenced|epoch|newer|transactional"):
        zombie.commit()
    heir.commit()
    assert reader.values(pipeline.target) == ["of the heir"]
    assert sorted(reader.values(pipeline.target, "read_uncommitted")) == ["of the heir", "of the zombie"]


def test_a_transaction_that_takes_too_long_is_aborted(pipeline: Pipeline, reader: CommittedReader) -> None:
    producer = Producer(
        {
            "bootstrap.servers": pipeline.bootstrap,
            "transactional.id": pipeline.transactional_id,
            "transaction.timeout.ms": 1_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(pipeline.target, b"late")
    assert producer.flush(WAIT_S) == 0
    assert reader.values(pipeline.target) == []  # which waits until it is decided
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(WAIT_S)
    assert refused.value.args[0].fatal() or refused.value.args[0].txn_requires_abort()
    assert reader.values(pipeline.target) == []


def test_an_idempotent_producer_writes_once_and_in_order_though_the_broker_is_killed(
    killable: KillableBroker, pipeline: Pipeline, reader: CommittedReader
) -> None:
    producer = Producer(
        {"bootstrap.servers": killable.bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 0}
    )
    expected = [str(number) for number in range(9_000)]
    failures: list[object] = []

    def delivered(error: object, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    for number, value in enumerate(expected):
        producer.produce(pipeline.target, value.encode(), on_delivery=delivered)
        producer.poll(0)
        if number % 3_000 == 1_500:
            killable.restart()
    assert producer.flush(WAIT_S) == 0
    assert not failures
    assert reader.values(pipeline.target) == expected
