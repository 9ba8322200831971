"""The client against the real Kafka: what it does with any broker, and transactions, which need one."""

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from ottla.client import LATEST, Isolation, Producer, Reader
from ottla.client.network.cluster import ClientOptions, Cluster
from ottla.records.build import build_batch
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.apache_kafka.harness import ApacheKafka
from tests.cli.command_line_page import PAGES_OF_KAFKA, runnable_commands
from tests.client.contract import ClientContract, eventually, make_topic


@pytest.fixture
def bootstrap(apache_kafka: ApacheKafka) -> str:
    return apache_kafka.bootstrap


class TestOnApacheKafka(ClientContract):
    pass


async def write_transactions(bootstrap: str, topic: str, transactions: Iterable[tuple[bytes, bool]]) -> None:
    """Each a value and whether it is committed, one after the other."""
    async with Cluster(bootstrap, ClientOptions()) as cluster:
        known = await cluster.topic(topic)
        for value, is_committed in transactions:
            producer_id, producer_epoch = await begin(cluster, topic)
            batch = build_batch(
                [value], timestamp=0, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=0,
                is_transactional=True,
            )  # fmt: skip
            data = [PartitionProduceData(index=0, records=batch)]
            produced = await cluster.ask_any(
                ProduceRequest(
                    transactional_id=topic,
                    acks=-1,
                    timeout_ms=10_000,
                    topic_data=[TopicProduceData(name=topic, topic_id=known.topic_id, partition_data=data)],
                ),
                ProduceResponse,
            )
            assert produced.responses[0].partition_responses[0].error_code == 0
            ended = await cluster.ask_any(
                EndTxnRequest(
                    transactional_id=topic,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    committed=is_committed,
                ),
                EndTxnResponse,
            )
            assert ended.error_code == 0


async def begin(cluster: Cluster, transactional_id: str) -> tuple[int, int]:
    """A producer's id and epoch; the coordinator takes a moment at first, and between transactions."""
    while True:
        found = await cluster.ask_any(
            FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), FindCoordinatorResponse
        )
        if not found.coordinators[0].error_code:
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
            given = await cluster.ask_any(request, InitProducerIdResponse)
            if not given.error_code:
                return given.producer_id, given.producer_epoch
        await asyncio.sleep(0.05)


def read(bootstrap: str, topic: str, isolation: Isolation) -> list[bytes | None]:
    with Reader(bootstrap, topic, end=LATEST, isolation=isolation) as reader:
        return [record.value for fetched in reader for record in fetched.records]


def test_a_reader_of_committed_records_sees_no_aborted_ones(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    with Producer(bootstrap) as producer:
        producer.send(topic, b"plain")
    transactions = [(b"one", True), (b"two", False), (b"three", True), (b"four", False)]
    asyncio.run(write_transactions(bootstrap, topic, transactions))
    assert read(bootstrap, topic, Isolation.READ_COMMITTED) == [b"plain", b"one", b"three"]
    everything = [b"plain", b"one", b"two", b"three", b"four"]
    assert read(bootstrap, topic, Isolation.READ_UNCOMMITTED) == everything


def has_all_lines(expected: str, printed: str) -> bool:
    return set(expected.splitlines()) <= set(printed.splitlines())


@pytest.mark.parametrize("page", PAGES_OF_KAFKA, ids=lambda page: page.stem)
def test_the_command_line_does_with_kafka_what_a_page_says(page: Path, bootstrap: str, tmp_path: Path) -> None:
    for command, output, run in runnable_commands(page, bootstrap, tmp_path):
        if " list" in command:  # this broker has the topics and groups of other tests too
            eventually(run, partial(has_all_lines, output))
        elif " describe " in command:
            eventually(run, output.__eq__)
        else:
            assert run() == output, command
