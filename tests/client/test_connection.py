"""One connection, and all that the other side can do wrong."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from ottla.client.errors import (
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    MalformedAnswer,
    RequestTimedOut,
    UnsupportedByBroker,
)
from ottla.client.network.address import Address
from ottla.client.network.connection import Connection, open_connection
from ottla.wire.apis import API_VERSIONS, DESCRIBE_CLUSTER, HEARTBEAT, METADATA, PRODUCE
from ottla.wire.frames import encode_response
from ottla.wire.header import RequestHeader
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.parts import Buffer
from ottla.wire.schema import Request
from tests.apache_kafka.harness import free_ports
from tests.client.scripted_broker import CLOSE, SILENCE, Answer, ScriptedBroker, frame, versions

TIMEOUT_MS = 30_000
HEARTBEAT_REQUEST = HeartbeatRequest(group_id="group", generation_id=1, member_id="member")


def ask(connection: Connection, timeout_ms: int = TIMEOUT_MS) -> Awaitable[HeartbeatResponse]:
    return connection.ask(HEARTBEAT_REQUEST, HeartbeatResponse, timeout_ms=timeout_ms)


def with_connection(broker: ScriptedBroker, use: Callable[[Connection], Awaitable[None]]) -> None:
    """Runs `use` on a connection to the broker."""

    async def run() -> None:
        async with broker:
            connection = await open_connection(broker.address, "test", timeout_ms=TIMEOUT_MS)
            try:
                await use(connection)
            finally:
                await connection.close()

    asyncio.run(run())


def generation(_: RequestHeader, request: Request) -> HeartbeatResponse:
    """An answer by which the request can be told."""
    return HeartbeatResponse(error_code=cast(HeartbeatRequest, request).generation_id)


def test_requests_are_sent_without_waiting_and_answers_find_theirs() -> None:
    async def use(connection: Connection) -> None:
        requests = [HeartbeatRequest(group_id="g", generation_id=number, member_id="") for number in range(250)]
        answers = await asyncio.gather(
            *(connection.ask(request, HeartbeatResponse, timeout_ms=TIMEOUT_MS) for request in requests)
        )
        assert [answer.error_code for answer in answers] == list(range(250))

    with_connection(ScriptedBroker({HEARTBEAT: generation}), use)


def test_later_requests_go_out_while_the_first_waits_for_its_answer() -> None:
    held: list[bytes] = []

    def answer_at_the_third(header: RequestHeader, request: Request) -> bytes:
        parts = encode_response(header.correlation_id, generation(header, request), header.version)
        held.append(b"".join(cast(list[bytes], parts)))
        return b"".join(held) if len(held) == 3 else SILENCE

    async def use(connection: Connection) -> None:
        await asyncio.gather(*(ask(connection) for _ in range(3)))
        assert len(held) == 3

    with_connection(ScriptedBroker({HEARTBEAT: answer_at_the_third}), use)


LARGE_BYTES = 12_000_000  # more than a socket takes


def produce(number: int, size: int, acks: int) -> ProduceRequest:
    rows = [PartitionProduceData(index=number, records=bytes([number]) * size)]
    return ProduceRequest(acks=acks, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=rows)])


def produced(request: Request) -> tuple[int, Buffer]:
    [topic] = cast(ProduceRequest, request).topic_data
    [row] = topic.partition_data
    return row.index, bytes(cast(Buffer, row.records))


def test_requests_larger_than_a_socket_takes_arrive_whole_and_in_order() -> None:
    sizes = [LARGE_BYTES, 3, 70_000, LARGE_BYTES, 1]
    broker = ScriptedBroker({PRODUCE: lambda *_: ProduceResponse(responses=[])})

    async def use(connection: Connection) -> None:
        requests = [produce(number, size, acks=1) for number, size in enumerate(sizes)]
        await asyncio.gather(
            *(connection.ask(request, ProduceResponse, timeout_ms=TIMEOUT_MS, at_most=12) for request in requests)
        )
        expected = [(number, bytes([number]) * size) for number, size in enumerate(sizes)]
        assert [produced(request) for request in broker.asked(PRODUCE)] == expected

    with_connection(broker, use)


def test_what_is_to_go_out_when_the_connection_is_closed_goes_out() -> None:
    """Nobody waits for an answer, so nothing else keeps the connection open."""
    arrived = asyncio.Event()

    def arrive(_: RequestHeader, request: Request) -> bytes:
        if produced(request) == (1, b"\1" * LARGE_BYTES):
            arrived.set()
        return SILENCE

    async def use(connection: Connection) -> None:
        await connection.tell(produce(1, LARGE_BYTES, acks=0), timeout_ms=TIMEOUT_MS, at_most=12)
        await connection.close()
        await asyncio.wait_for(arrived.wait(), TIMEOUT_MS / 1000)

    with_connection(ScriptedBroker({PRODUCE: arrive}), use)


def advertised(*rows: tuple[int, int, int]) -> Answer:
    keys = [ApiVersion(api_key=key, min_version=least, max_version=highest) for key, least, highest in rows]
    return lambda _, __: ApiVersionsResponse(error_code=0, api_keys=keys)


@pytest.mark.parametrize(("theirs", "chosen"), [((0, 2), 2), ((0, 4), 4), ((1, 99), 4), ((4, 7), 4)])
def test_the_highest_version_that_both_have_is_used(theirs: tuple[int, int], chosen: int) -> None:
    broker = ScriptedBroker({API_VERSIONS: advertised((HEARTBEAT.key, *theirs)), HEARTBEAT: generation})

    async def use(connection: Connection) -> None:
        await ask(connection)
        assert broker.requests[-1][0].version == chosen
        assert broker.requests[-1][0].client_id == "test"

    with_connection(broker, use)


def test_a_broker_that_lacks_an_api_or_its_versions() -> None:
    async def use(connection: Connection) -> None:
        with pytest.raises(UnsupportedByBroker, match="does not know Heartbeat") as raised:
            await ask(connection)
        assert not raised.value.is_retriable
        with pytest.raises(UnsupportedByBroker, match=r"has Metadata in versions 14-15, this client can use 0-13"):
            connection.version_of(METADATA)
        with pytest.raises(UnsupportedByBroker, match=r"has DescribeCluster in versions 1-2, this client can use 0$"):
            connection.version_of(DESCRIBE_CLUSTER, at_most=0)

    rows = (METADATA.key, 14, 15), (DESCRIBE_CLUSTER.key, 1, 2)
    with_connection(ScriptedBroker({API_VERSIONS: advertised(*rows)}), use)


def test_a_broker_that_does_not_have_our_version_of_api_versions_is_asked_in_its_own() -> None:
    def old_broker(header: RequestHeader, request: Request) -> ApiVersionsResponse | bytes:
        if header.version <= 1:
            return versions(header, request)
        refusal = ApiVersionsResponse(
            error_code=35, api_keys=[ApiVersion(api_key=API_VERSIONS.key, min_version=0, max_version=1)]
        )
        return b"".join(cast(list[bytes], encode_response(header.correlation_id, refusal, 0)))

    broker = ScriptedBroker({API_VERSIONS: old_broker, HEARTBEAT: generation})

    async def use(connection: Connection) -> None:
        assert [header.version for header, _ in broker.requests] == [4, 1]
        await ask(connection)

    with_connection(broker, use)


def expect_failure(answer: Answer, error: type[ClientError], says: str, *, timeout_ms: int = TIMEOUT_MS) -> None:
    """The request fails, so do those behind it, and the connection is of no more use."""

    async def use(connection: Connection) -> None:
        first, second = await asyncio.gather(
            ask(connection, timeout_ms), ask(connection, TIMEOUT_MS), return_exceptions=True
        )
        assert isinstance(first, error)
        assert isinstance(second, error)
        assert says in str(first)
        assert not connection.is_open
        with pytest.raises(ConnectionLost):
            await ask(connection)

    with_connection(ScriptedBroker({HEARTBEAT: answer}), use)


def test_a_connection_that_is_cut() -> None:
    expect_failure(lambda _, __: CLOSE, ConnectionLost, "the broker closed the connection")


def test_an_answer_that_is_cut_off() -> None:
    answers = iter([frame(b"\0" * 100)[:50], CLOSE])
    expect_failure(lambda _, __: next(answers), ConnectionLost, "the broker closed the connection")


def test_an_answer_that_does_not_come() -> None:
    expect_failure(lambda _, __: SILENCE, RequestTimedOut, "no answer to Heartbeat within 0.05 s", timeout_ms=50)


def test_an_answer_with_the_wrong_correlation_id() -> None:
    expect_failure(lambda _, __: frame(struct.pack(">i", 4711) + bytes(20)), MalformedAnswer, "correlation id 4711")


def test_answers_in_the_wrong_order() -> None:
    def answer_the_next(header: RequestHeader, _: Request) -> bytes:
        response = HeartbeatResponse(error_code=0)
        return b"".join(cast(list[bytes], encode_response(header.correlation_id + 1, response, header.version)))

    expect_failure(answer_the_next, MalformedAnswer, "which is not due")


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        frame(b""),
        frame(b"abc"),
    ],
)
def test_garbage(garbage: bytes) -> None:
    expect_failure(lambda _, __: garbage, MalformedAnswer, "not Kafka's protocol")


def test_an_answer_that_is_too_short_for_its_message() -> None:
    def short(header: RequestHeader, _: Request) -> bytes:
        return frame(struct.pack(">ib", header.correlation_id, 0))

    expect_failure(short, MalformedAnswer, "HeartbeatResponse")


def test_an_answer_that_nobody_asked_for() -> None:
    def twice(header: RequestHeader, request: Request) -> bytes:
        parts = encode_response(header.correlation_id, generation(header, request), header.version)
        return b"".join(cast(list[bytes], parts)) * 2

    async def use(connection: Connection) -> None:
        await ask(connection)
        with pytest.raises((MalformedAnswer, ConnectionLost), match="which is not due"):
            await ask(connection)

    with_connection(ScriptedBroker({HEARTBEAT: twice}), use)


def test_a_caller_who_leaves_does_not_disturb_the_others() -> None:
    held: list[bytes] = []

    def answer_both_at_the_second(header: RequestHeader, request: Request) -> bytes:
        parts = encode_response(header.correlation_id, generation(header, request), header.version)
        held.append(b"".join(cast(list[bytes], parts)))
        return b"".join(held) if len(held) == 2 else SILENCE

    async def use(connection: Connection) -> None:
        leaving = asyncio.ensure_future(ask(connection))
        while not held:
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert (await ask(connection)).error_code == 1
        assert connection.is_open

    with_connection(ScriptedBroker({HEARTBEAT: answer_both_at_the_second}), use)


def test_a_broker_that_asks_to_be_left_alone_is(monkeypatch: pytest.MonkeyPatch) -> None:
    waited_seconds: list[float] = []
    broker = ScriptedBroker({HEARTBEAT: lambda _, __: HeartbeatResponse(error_code=0, throttle_time_ms=20)})

    async def sleep(seconds: float) -> None:
        waited_seconds.append(seconds)
        assert len(broker.asked(HEARTBEAT)) == 1
        await real_sleep(seconds)

    real_sleep = asyncio.sleep

    async def use(connection: Connection) -> None:
        await ask(connection)
        monkeypatch.setattr("asyncio.sleep", sleep)
        await ask(connection)
        monkeypatch.undo()

    with_connection(broker, use)
    assert waited_seconds
    assert 0 < waited_seconds[0] <= 0.02


def test_nobody_listens() -> None:
    [port] = free_ports(1)
    address = Address("127.0.0.1", port)
    with pytest.raises(BrokerUnreachable, match=f"cannot reach a broker at {address}: connection refused") as raised:
        asyncio.run(open_connection(address, "test", timeout_ms=TIMEOUT_MS))
    assert raised.value.is_retriable


def test_a_name_that_is_not_known() -> None:
    with pytest.raises(BrokerUnreachable, match=r"cannot reach a broker at no-such-host\.invalid:9092"):
        asyncio.run(open_connection(Address("no-such-host.invalid", 9092), "test", timeout_ms=TIMEOUT_MS))
