"""Brokers that know more and less than each other, and one that is stopped while others answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from ottla.client import ClientOptions, TopicPartition, aio
from ottla.client.errors import ClientError
from ottla.client.network import cluster as cluster_module
from ottla.client.network.address import Address
from ottla.client.network.cluster import Cluster
from ottla.testing.world import FaultKind, RequestFault, World
from ottla.wire.apis import API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, PRODUCE, Api
from ottla.wire.errors import ErrorCode
from ottla.wire.header import RequestHeader
from ottla.wire.messages import fetch as fetch_messages
from ottla.wire.messages import produce as produce_messages
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse, TopicProduceResponse
from ottla.wire.schema import Request
from tests.client.scripted_broker import SILENCE, TOPIC, TOPIC_ID, Answer, ScriptedBroker, versions
from tests.client.test_reader import START, fetch, fetched, list_offsets, partition_data

LONG_SECONDS = 30
OPTIONS = ClientOptions(request_timeout_ms=20_000, retry_timeout_ms=20_000)
NEW_EPOCH = 7


def produced(_: RequestHeader, request: Request) -> ProduceResponse:
    rows = [
        produce_messages.PartitionProduceResponse(index=row.index, error_code=0, base_offset=0)
        for row in cast(ProduceRequest, request).topic_data[0].partition_data
    ]
    return ProduceResponse(responses=[TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=rows)])


@asynccontextmanager
async def moved() -> AsyncIterator[tuple[ScriptedBroker, ScriptedBroker]]:
    """The second leads the partition, which the first says when it is asked for records, but not in its metadata."""

    def not_produced(_: RequestHeader, __: Request) -> ProduceResponse:
        row = produce_messages.PartitionProduceResponse(
            index=0,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            base_offset=-1,
            current_leader=produce_messages.LeaderIdAndEpoch(leader_id=2, leader_epoch=NEW_EPOCH),
        )
        return ProduceResponse(
            responses=[TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=[row])],
            node_endpoints=[produce_messages.NodeEndpoint(node_id=2, host="127.0.0.1", port=second.address.port)],
        )

    def not_fetched(_: RequestHeader, __: Request) -> fetch_messages.FetchResponse:
        row = partition_data(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        row.current_leader = fetch_messages.LeaderIdAndEpoch(leader_id=2, leader_epoch=NEW_EPOCH)
        answer = fetched(row)
        answer.node_endpoints = [fetch_messages.NodeEndpoint(node_id=2, host="127.0.0.1", port=second.address.port)]
        return answer

    def answers(produce: Answer, fetch: Answer) -> dict[Api, Answer]:
        return {PRODUCE: produce, FETCH: fetch, LIST_OFFSETS: list_offsets}

    first = ScriptedBroker(answers(not_produced, not_fetched))
    second = ScriptedBroker(answers(produced, fetch))
    async with first, second, asyncio.timeout(LONG_SECONDS):
        second.answers[METADATA] = first.metadata  # the same old one
        yield first, second


def test_a_producer_follows_the_hint_and_older_metadata_does_not_bring_it_back() -> None:
    async def run() -> None:
        async with moved() as (first, second), aio.Producer(first.bootstrap, options=OPTIONS, linger_ms=0) as producer:
            for _ in range(3):
                await producer.send(TOPIC, b"x")
                await producer._cluster.refresh([TOPIC])
            assert len(first.asked(PRODUCE)) == 1
            assert len(second.asked(PRODUCE)) == 3

    asyncio.run(run())


async def read_by_consumer(bootstrap: str) -> int:
    async with aio.Consumer(bootstrap, options=OPTIONS, fetch_wait_ms=10) as consumer:
        await consumer.assign([TopicPartition(TOPIC, 0)])
        async for message in consumer:
            return message.offset
    raise AssertionError


async def read_by_reader(bootstrap: str) -> int:
    async with aio.Reader(bootstrap, TOPIC, options=OPTIONS) as reader:
        async for found in reader:
            return int(found.records[0].offset)
    raise AssertionError


async def read_by_batch_reader(bootstrap: str) -> int:
    async with aio.BatchReader(bootstrap, options=OPTIONS) as reader:
        reader.assign({TopicPartition(TOPIC, 0): START})
        while not (found := await reader.poll()):
            pass
        return found[0].fetch_offset


@pytest.mark.parametrize("read", [read_by_consumer, read_by_reader, read_by_batch_reader])
def test_whoever_reads_follows_the_hint(read: Any) -> None:
    async def run() -> None:
        async with moved() as (first, second):
            assert await read(first.bootstrap) == START
            assert len(first.asked(FETCH)) == 1
            asked = cast(fetch_messages.FetchRequest, second.asked(FETCH)[0])
            assert asked.topics[0].partitions[0].current_leader_epoch == NEW_EPOCH

    asyncio.run(run())


def test_a_broker_that_owes_an_answer_is_not_asked_for_what_others_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "LATE_SECONDS", 0.01)

    async def run() -> None:
        first, second = ScriptedBroker(), ScriptedBroker()
        async with first, second, asyncio.timeout(LONG_SECONDS), Cluster(first.bootstrap, OPTIONS) as cluster:
            first.other_brokers = {2: second.address}
            second.answers[METADATA] = first.metadata
            await cluster.open()
            first.answers[METADATA] = first.answers[API_VERSIONS] = lambda _, __: SILENCE
            stuck = asyncio.ensure_future(cluster.ask(1, ApiVersionsRequest(), ApiVersionsResponse))
            await asyncio.sleep(0.05)
            for _ in range(3):
                await cluster.refresh([TOPIC])
            assert len(second.asked(METADATA)) == 3
            assert not stuck.done()
            stuck.cancel()

    asyncio.run(run())


def test_a_broker_that_accepts_and_says_nothing_is_waited_for_once_by_all_who_wait() -> None:
    async def run() -> None:
        first, second = ScriptedBroker(), ScriptedBroker({API_VERSIONS: lambda _, __: SILENCE})
        options = OPTIONS._replace(connect_timeout_ms=300)
        async with first, second, asyncio.timeout(LONG_SECONDS), Cluster(first.bootstrap, options) as cluster:
            first.other_brokers = {2: second.address}
            await cluster.open()
            asked = [cluster.ask(2, ApiVersionsRequest(), ApiVersionsResponse) for _ in range(10)]
            results = await asyncio.gather(*asked, return_exceptions=True)
            assert all(isinstance(result, ClientError) for result in results)
            assert len(second.requests) == 1
            second.answers[API_VERSIONS] = versions
            await cluster.ask(2, ApiVersionsRequest(), ApiVersionsResponse)

    asyncio.run(run())


def test_brokers_that_are_away_are_tried_last() -> None:
    async def run() -> None:
        first, second = ScriptedBroker(), ScriptedBroker()
        async with first, second, asyncio.timeout(LONG_SECONDS), Cluster(first.bootstrap, OPTIONS) as cluster:
            first.other_brokers = {2: second.address, 3: Address("127.0.0.1", 1)}
            second.answers[METADATA] = first.metadata
            await cluster.open()
            with pytest.raises(ClientError):
                await cluster.connection(3)
            for connection in list(cluster._connections.values()):
                await connection.close()
            first.answers[API_VERSIONS] = second.answers[API_VERSIONS] = versions
            await cluster.refresh([TOPIC])  # whichever of the two is chosen
            assert len(first.asked(METADATA)) + len(second.asked(METADATA)) == 2

    asyncio.run(run())


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_a_coordinator_that_is_stopped_is_not_waited_for_as_one_that_is_patient(api: str) -> None:
    """It may park these requests for max_poll_interval_ms, five minutes: but it lives, and answers other questions."""
    with World() as world:
        world.create_topic("t")
        world.put("t", b"x")
        stopped_at: list[float] = []

        def is_stopped(_: object) -> bool:
            return bool(stopped_at) and world.now() < stopped_at[0] + 20

        def stop(_: object) -> bool:
            if not stopped_at:
                stopped_at.append(world.now())
            return False

        world.faults.add(api, RequestFault(FaultKind.PASS), when=stop)
        world.faults.add("*", RequestFault(FaultKind.SILENCE), times=1_000, when=is_stopped)

        async def read() -> None:
            async with aio.Consumer(world.bootstrap, "t", group="g") as consumer:
                async for _ in consumer:
                    return

        world.run(read(), most_seconds=600)
        assert stopped_at
        assert world.now() < stopped_at[0] + 60


def test_a_coordinator_that_is_patient_is_waited_for() -> None:
    """A member that does not give up its partitions holds up the join of another longer than an answer may take."""
    with World() as world:
        world.create_topic("t")
        options = ClientOptions(request_timeout_ms=1_000, retry_timeout_ms=3_000)
        chosen: dict[str, Any] = {
            "group": "g", "options": options, "assignors": ["range"], "max_poll_interval_ms": 20_000,
        }  # fmt: skip

        async def scenario() -> tuple[int, float]:
            async with aio.Consumer(world.bootstrap, "t", **chosen) as first:
                while not first.assignment:
                    await first.poll(100)
                joins = world.faults.add("JoinGroup", RequestFault(FaultKind.DELAY), times=100)
                started = world.now()
                async with aio.Consumer(world.bootstrap, "t", **chosen) as second:
                    while not second.assignment:
                        await second.poll(100)
                return joins.count, world.now() - started

        joins, seconds = world.run(scenario(), most_seconds=600)
        assert seconds > 10
        assert joins == 2  # for its id, and with it
