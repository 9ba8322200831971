"""The reader against a broker that moves away, is damaged, and has less than was asked for."""

import asyncio
from typing import Any, cast

import pytest

from ottla.client.aio import Reader
from ottla.client.errors import MalformedAnswer, ServerError, UnknownTopicOrPartition
from ottla.client.network.cluster import ClientOptions
from ottla.client.network.connection import Connection
from ottla.client.offsets import EARLIEST, LATEST, AtTime, Position
from ottla.records.build import build_batch
from ottla.wire.apis import FETCH, LIST_OFFSETS, METADATA
from ottla.wire.errors import ErrorCode
from ottla.wire.header import RequestHeader
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.schema import Request
from tests.client.scripted_broker import CLOSE, TOPIC, TOPIC_ID, Answer, ScriptedBroker

QUICK = ClientOptions(retry_timeout_ms=5_000, retry_pause_ms=1, unknown_topic_timeout_ms=5)
BATCH_RECORDS = 10
START, END = 20, 100


def batch_at(offset: int) -> bytearray:
    base_offset = offset - offset % BATCH_RECORDS
    values = [b"%d" % number for number in range(base_offset, base_offset + BATCH_RECORDS)]
    return build_batch(values, timestamp=base_offset, base_offset=base_offset)


def fetch(_: RequestHeader, request: Request) -> FetchResponse:
    """Offsets START to END of every partition, in batches whose timestamps are their offsets."""
    rows = []
    for asked in cast(FetchRequest, request).topics[0].partitions:
        offset = asked.fetch_offset
        code = 0 if START <= offset <= END else ErrorCode.OFFSET_OUT_OF_RANGE
        records = bytes(batch_at(offset)) if START <= offset < END else b""
        rows.append(partition_data(asked.partition, code, records))
    return fetched(*rows)


def partition_data(partition: int, code: int = 0, records: bytes = b"") -> PartitionData:
    return PartitionData(
        partition_index=partition, error_code=code, high_watermark=END, aborted_transactions=None, records=records
    )


def fetched(*rows: PartitionData) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(rows))])


def list_offsets(_: RequestHeader, request: Request) -> ListOffsetsResponse:
    rows = []
    for asked in cast(ListOffsetsRequest, request).topics[0].partitions:
        offset = {-2: START, -1: END}.get(asked.timestamp, max(START, asked.timestamp))
        rows.append(
            ListOffsetsPartitionResponse(
                partition_index=asked.partition_index, error_code=0, offset=-1 if offset > END else offset
            )
        )
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=rows)])


def scripted(fetch: Answer = fetch, **options: int) -> ScriptedBroker:
    return ScriptedBroker({FETCH: fetch, LIST_OFFSETS: list_offsets}, **options)


def read(
    broker: ScriptedBroker, *, start: Position = EARLIEST, end: Position | None = LATEST, topic: str = TOPIC,
    partitions: list[int] | None = None, reset: Position | None = None, options: ClientOptions = QUICK,
) -> dict[int, list[int]]:  # fmt: skip
    """The offsets that are read, by partition."""

    async def run() -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        async with (
            broker,
            Reader(broker.bootstrap, topic, partitions, start=start, end=end, reset=reset, options=options) as reader,
        ):
            async for fetched in reader:
                for record in fetched.records:
                    assert record.value == b"%d" % record.offset
                    found.setdefault(fetched.partition, []).append(record.offset)
            assert reader.is_done
        return found

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("start", "end", "offsets"),
    [
        (EARLIEST, LATEST, range(START, END)),
        (33, 57, range(33, 57)),
        (33, 33, range(0)),
        (LATEST, LATEST, range(0)),
        (57, 33, range(0)),
        (AtTime(45), AtTime(61), range(45, 61)),
        (AtTime(90), AtTime(5000), range(90, END)),
        (AtTime(5000), LATEST, range(0)),
    ],
)
def test_from_anywhere_to_anywhere(start: Position, end: Position, offsets: range) -> None:
    assert read(scripted(), start=start, end=end).get(0, []) == list(offsets)


def test_all_partitions_or_those_that_are_named() -> None:
    everything = list(range(START, END))
    assert read(scripted(partition_count=3)) == {0: everything, 1: everything, 2: everything}
    assert read(scripted(partition_count=3), partitions=[2]) == {2: everything}


def test_without_an_end_it_waits_for_more() -> None:
    async def run() -> None:
        async with scripted() as broker, Reader(broker.bootstrap, TOPIC, start=90, options=QUICK) as reader:
            assert reader.offsets == {}
            assert await reader.left() == 10
            [first] = await reader.poll()
            assert (first.topic, first.partition, first.next_offset, first.high_watermark) == (TOPIC, 0, END, END)
            assert await reader.poll() == []
            assert reader.offsets == {0: END}
            assert await reader.left() == 0
            assert not reader.is_done

    asyncio.run(run())


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID]
)
def test_what_may_succeed_later_is_asked_for_again(code: ErrorCode) -> None:
    refusals = iter([code] * 3)

    def refuse_first(header: RequestHeader, request: Request) -> FetchResponse:
        refusal = next(refusals, None)
        return fetch(header, request) if refusal is None else fetched(partition_data(0, refusal))

    broker = scripted(refuse_first)
    assert read(broker) == {0: list(range(START, END))}
    assert len(broker.asked(METADATA)) >= 4


def test_a_leader_that_moves_is_followed() -> None:
    async def run() -> None:
        async with scripted() as new:

            def move_after_the_first(header: RequestHeader, request: Request) -> FetchResponse:
                if not old.leaders:
                    old.leaders[0] = 2
                    return fetch(header, request)
                return fetched(partition_data(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))

            old = scripted(move_after_the_first)
            old.other_brokers[2] = new.address
            async with old, Reader(old.bootstrap, TOPIC, end=LATEST, options=QUICK) as reader:
                offsets = [record.offset async for one in reader for record in one.records]
            assert offsets == list(range(START, END))
            assert new.asked(FETCH)

    asyncio.run(run())


def test_a_partition_without_a_leader_does_not_keep_the_others_from_being_read() -> None:
    async def run() -> None:
        async with scripted(partition_count=3) as broker, Reader(broker.bootstrap, TOPIC, options=QUICK) as reader:
            await reader.left()
            broker.leaders[0] = -1
            reader._cluster.forget(TOPIC)
            given: set[int] = set()
            while given != {1, 2}:
                given.update(one.partition for one in await reader.poll())
            broker.leaders[0] = 1
            while given != {0, 1, 2}:
                given.update(one.partition for one in await reader.poll())

    asyncio.run(run())


async def read_for_ever(reader: Reader, partition: int) -> None:
    async for one in reader:
        assert one.partition == partition


def test_a_partition_that_stays_without_a_leader_is_an_error_in_the_end() -> None:
    async def run() -> None:
        impatient = QUICK._replace(retry_timeout_ms=200)
        async with scripted(partition_count=2) as broker, Reader(broker.bootstrap, TOPIC, options=impatient) as reader:
            await reader.left()
            broker.leaders[1] = -1
            reader._cluster.forget(TOPIC)
            with pytest.raises(ServerError, match=r"partition 1.*LEADER_NOT_AVAILABLE"):
                await read_for_ever(reader, 0)

    asyncio.run(run())


def test_a_connection_that_is_cut_is_opened_again() -> None:
    cuts = iter([CLOSE, None, CLOSE, None])
    assert read(scripted(lambda header, request: next(cuts, None) or fetch(header, request))) == {
        0: list(range(START, END))
    }


def test_trouble_with_one_partition_does_not_lose_what_others_bring() -> None:
    def refuse_one(header: RequestHeader, request: Request) -> FetchResponse:
        answer = fetch(header, request)
        for row in answer.responses[0].partitions:
            if row.partition_index == 1:
                row.error_code, row.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, b""
        return answer

    offsets: list[int] = []

    async def run() -> None:
        impatient = QUICK._replace(retry_timeout_ms=50)
        async with (
            scripted(refuse_one, partition_count=2) as broker,
            Reader(broker.bootstrap, TOPIC, end=LATEST, options=impatient) as reader,
        ):
            async for one in reader:
                offsets.extend(record.offset for record in one.records)

    with pytest.raises(ServerError, match="topic orders, partition 1: "):
        asyncio.run(run())
    assert offsets == list(range(START, START + len(offsets)))
    assert offsets


def test_an_offset_that_is_not_there() -> None:
    with pytest.raises(ServerError, match=r"topic orders, partition 0: offset 3 is not in the partition") as raised:
        read(scripted(), start=3)
    assert (raised.value.code, raised.value.topic, raised.value.partition) == (1, TOPIC, 0)
    assert read(scripted(), start=3, reset=EARLIEST) == {0: list(range(START, END))}
    assert read(scripted(), start=3, reset=LATEST) == {}


def test_a_damaged_batch_is_named_and_nothing_of_it_is_given_out() -> None:
    def damage(header: RequestHeader, request: Request) -> FetchResponse:
        answer = fetch(header, request)
        for row in answer.responses[0].partitions:
            damaged = bytearray(cast(bytes, row.records))
            damaged[-1] ^= 1
            row.records = bytes(damaged)
        return answer

    with pytest.raises(MalformedAnswer, match="partition 0: a damaged batch at or behind offset 20: checksum"):
        read(scripted(damage))


def test_an_answer_with_a_partition_that_nobody_asked_for() -> None:
    with pytest.raises(MalformedAnswer, match="nobody asked for"):
        read(scripted(lambda _, __: fetched(partition_data(9))))


def test_a_topic_or_a_partition_that_is_not_there() -> None:
    with pytest.raises(UnknownTopicOrPartition, match="topic invoices: there is no such topic"):
        read(scripted(), topic="invoices")
    with pytest.raises(UnknownTopicOrPartition, match="topic orders, partition 5: the topic has 2 partitions"):
        read(scripted(partition_count=2), partitions=[0, 5])


def test_the_time_that_a_broker_may_wait_is_not_part_of_the_time_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts_ms: list[int] = []
    ask = Connection.ask

    async def watched(self: Connection, request: Request, answer: Any, **options: Any) -> Any:
        if isinstance(request, FetchRequest):
            timeouts_ms.append(options["timeout_ms"])
            assert request.max_wait_ms == options["wait_ms"] == 7000
        return await ask(self, request, answer, **options)

    async def run() -> None:
        async with scripted() as broker, Reader(broker.bootstrap, TOPIC, options=QUICK) as reader:
            await reader.poll(wait_ms=7000)

    monkeypatch.setattr(Connection, "ask", watched)
    asyncio.run(run())
    assert timeouts_ms == [QUICK.request_timeout_ms]


def test_a_reader_that_is_closed_while_it_waits_leaves_nothing_behind() -> None:
    async def run() -> None:
        async with scripted(lambda _, __: b"") as broker:
            async with Reader(broker.bootstrap, TOPIC, options=QUICK) as reader:
                waiting = asyncio.ensure_future(reader.poll())
                while not broker.asked(FETCH):
                    await asyncio.sleep(0)
                waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert len(asyncio.all_tasks()) <= 2  # this one, and the broker's side of the connection

    asyncio.run(run())
