"""The producer against a broker that refuses, moves away, forgets to answer and takes only small batches."""

import asyncio
import contextlib
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import pytest

from ottla.client.aio import Producer
from ottla.client.errors import (
    BrokerUnreachable,
    BufferFull,
    ClientError,
    DeliveryFailed,
    DeliveryTimedOut,
    InvalidRecord,
    ServerError,
    UnknownTopicOrPartition,
    UnsupportedByBroker,
)
from ottla.client.network.cluster import ClientOptions
from ottla.client.producer.delivery import Delivery
from ottla.client.producer.routing import NewRecord
from ottla.records.batch import BatchHeader
from ottla.records.read import read_batches
from ottla.wire.apis import API_VERSIONS, INIT_PRODUCER_ID, METADATA, PRODUCE
from ottla.wire.errors import ErrorCode
from ottla.wire.header import RequestHeader
from ottla.wire.messages.api_versions import ApiVersionsResponse
from ottla.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.wire.schema import Request
from tests.client.scripted_broker import CLOSE, TOPIC, TOPIC_ID, ScriptedBroker, versions

QUICK = ClientOptions(retry_timeout_ms=5_000, retry_pause_ms=1, unknown_topic_timeout_ms=5)
IMPATIENT = QUICK._replace(retry_timeout_ms=500)
Refuse = Callable[[int, list[bytes]], int]


def produced(rows: list[PartitionProduceResponse]) -> ProduceResponse:
    return ProduceResponse(responses=[TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=rows)])


class Log:
    """What a broker that takes produced records has, by partition. `refuse` gives error codes.

    It looks at sequences as a broker does: what it has it does not write again, and nothing comes out of order.
    """

    def __init__(self, refuse: Refuse = lambda _partition, _values: 0) -> None:
        self.values: dict[int, list[bytes]] = {}
        self.request_count = 0
        self.refuse = refuse
        self.sequences: dict[int, dict[tuple[int, int], int]] = {}
        """By partition: the base offset of each epoch's and sequence's batch."""
        self.expected: dict[tuple[int, int], int] = {}
        """By partition and epoch: the next sequence."""

    def __call__(self, _: RequestHeader, request: Request) -> ProduceResponse | bytes:
        self.request_count += 1
        return produced([self.take(data) for data in cast(ProduceRequest, request).topic_data[0].partition_data])

    def take(self, data: PartitionProduceData) -> PartitionProduceResponse:
        held = self.values.setdefault(data.index, [])
        [batch] = read_batches(cast(memoryview, data.records))
        values = [record.value or b"" for record in batch.records()]
        code, base_offset = self.refuse(data.index, values), len(held)
        if not code and batch.header.producer_id >= 0:
            code, base_offset = self.number(data.index, batch.header, base_offset)
        if not code and base_offset == len(held):
            held += values
        return PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1 if code else base_offset)

    def number(self, partition: int, header: BatchHeader, end: int) -> tuple[int, int]:
        epoch, sequence = header.producer_epoch, header.base_sequence
        known = self.sequences.setdefault(partition, {})
        if (epoch, sequence) in known:
            return 0, known[epoch, sequence]
        expected = self.expected.get((partition, epoch), 0)
        if sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self.expected[partition, epoch] = sequence + header.count
        known[epoch, sequence] = end
        return 0, end


def send(
    broker: ScriptedBroker, records: Iterable[NewRecord], *, options: ClientOptions = QUICK, acks: str = "all",
    batch_bytes: int = 1000,
) -> Sequence[Delivery]:  # fmt: skip
    async def run() -> Sequence[Delivery]:
        async with (
            broker,
            Producer(broker.bootstrap, options=options, acks=acks, batch_bytes=batch_bytes) as producer,
        ):
            return await producer.send_many(TOPIC, records)

    return asyncio.run(run())


def numbered(count: int, partition: int | None = None) -> list[NewRecord]:
    return [NewRecord(b"%05d" % number, partition=partition) for number in range(count)]


def once(*codes: int) -> Refuse:
    """The error codes one after the other, then none."""
    left = list(codes)
    return lambda _partition, _values: left.pop(0) if left else 0


def test_each_record_is_told_where_it_is() -> None:
    log = Log()
    deliveries = send(ScriptedBroker({PRODUCE: log}, partition_count=3), numbered(500))
    assert sum(map(len, log.values.values())) == 500
    for record, delivery in zip(numbered(500), deliveries, strict=True):
        assert log.values[delivery.partition][delivery.offset] == record.value
    for values in log.values.values():
        assert values == sorted(values)


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_TOPIC_ID]
)
def test_what_may_succeed_later_is_sent_again_in_order(code: ErrorCode) -> None:
    log = Log(once(0, code, code, 0, code))
    broker = ScriptedBroker({PRODUCE: log})
    send(broker, numbered(200, partition=0), batch_bytes=500)
    assert log.values[0] == [record.value for record in numbered(200)]
    assert len(broker.asked(METADATA)) >= 3  # who leads is asked for anew


def test_a_leader_that_moves_is_followed() -> None:
    async def run() -> None:
        new_log = Log()
        async with ScriptedBroker({PRODUCE: new_log}) as new:

            def move(_partition: int, _values: list[bytes]) -> int:
                old.leaders[0] = 2
                return ErrorCode.NOT_LEADER_OR_FOLLOWER

            old = ScriptedBroker({PRODUCE: Log(move)})
            old.other_brokers[2] = new.address
            async with old, Producer(old.bootstrap, options=QUICK) as producer:
                await producer.send(TOPIC, b"followed")
        assert new_log.values == {0: [b"followed"]}

    asyncio.run(run())


def test_a_connection_that_is_lost_is_opened_again() -> None:
    log = Log()
    cuts = iter([CLOSE, CLOSE])
    broker = ScriptedBroker({PRODUCE: lambda header, request: next(cuts, None) or log(header, request)})
    send(broker, numbered(10, partition=0))
    assert log.values[0] == [record.value for record in numbered(10)]


def test_trouble_with_one_partition_does_not_keep_back_the_others() -> None:
    log = Log(lambda partition, _values: ErrorCode.NOT_LEADER_OR_FOLLOWER if partition == 1 else 0)
    records = [record for partition in range(3) for record in numbered(100, partition)]
    with pytest.raises(
        DeliveryFailed, match=r"100 of 300 records were not written: topic orders, partition 1: "
    ) as raised:
        send(ScriptedBroker({PRODUCE: log}, partition_count=3), records, options=IMPATIENT, batch_bytes=500)
    failed = [delivery for delivery in raised.value.deliveries if delivery.error is not None]
    assert [delivery.partition for delivery in failed] == [1] * 100
    assert log.values[0] == log.values[2] == [record.value for record in numbered(100)]
    assert raised.value.is_retriable
    assert (raised.value.topic, raised.value.partition) == (TOPIC, 1)


@pytest.mark.parametrize(("partition_count", "count"), [(1, 12), (1, 33), (3, 33)])
def test_no_batch_of_many_records_is_larger_than_it_may_be(partition_count: int, count: int) -> None:
    sizes: list[int] = []

    def weigh(_partition: int, values: list[bytes]) -> int:
        sizes.append(sum(24 + len(value) for value in values))
        return 0

    log = Log(weigh)
    values = [bytes([number]) * 76 for number in range(count)]
    broker = ScriptedBroker({PRODUCE: log}, partition_count=partition_count)
    send(broker, [NewRecord(value) for value in values], batch_bytes=1_000)
    assert max(sizes) <= 1_000
    assert sorted(value for held in log.values.values() for value in held) == values


def test_a_batch_that_is_too_large_is_split() -> None:
    log = Log(lambda _, values: ErrorCode.MESSAGE_TOO_LARGE if len(values) > 7 else 0)
    send(ScriptedBroker({PRODUCE: log}), numbered(100, partition=0), batch_bytes=10_000)
    assert log.values[0] == [record.value for record in numbered(100)]


def test_a_record_that_is_too_large_is_refused_alone() -> None:
    log = Log(lambda _, values: ErrorCode.MESSAGE_TOO_LARGE if b"00042" in values else 0)
    with pytest.raises(DeliveryFailed, match=r"1 of 100 records .* \(MESSAGE_TOO_LARGE\)") as raised:
        send(ScriptedBroker({PRODUCE: log}), numbered(100, partition=0), batch_bytes=10_000)
    assert [place for place, delivery in enumerate(raised.value.deliveries) if delivery.error] == [42]
    assert not raised.value.is_retriable


def test_a_record_that_the_broker_names_is_refused_and_its_neighbours_are_written() -> None:
    log, refusals = Log(), iter([True])

    def refuse(header: RequestHeader, request: Request) -> ProduceResponse | bytes:
        if not next(refusals, False):
            return log(header, request)
        bad = BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="it has no key")
        row = PartitionProduceResponse(
            index=0, error_code=ErrorCode.INVALID_RECORD, base_offset=-1, record_errors=[bad]
        )
        return ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, topic_id=TOPIC_ID, partition_responses=[row])]
        )

    with pytest.raises(DeliveryFailed) as raised:
        send(ScriptedBroker({PRODUCE: refuse}), numbered(3, partition=0))
    first, second, third = raised.value.deliveries
    assert str(second.error) == "topic orders, partition 0: it has no key (INVALID_RECORD)"
    assert (first.error, first.offset, third.error, third.offset) == (None, 0, None, 1)


def test_without_acks_nothing_is_waited_for() -> None:
    log = Log()
    broker = ScriptedBroker({PRODUCE: lambda header, request: log(header, request) and b""})
    deliveries = send(broker, numbered(300, partition=0), acks="0")
    assert {delivery.offset for delivery in deliveries} == {-1}
    assert cast(ProduceRequest, broker.asked(PRODUCE)[0]).acks == 0


def test_an_answer_that_leaves_out_a_partition() -> None:
    with pytest.raises(DeliveryFailed, match="leaves out a partition"):
        send(ScriptedBroker({PRODUCE: lambda _, __: ProduceResponse(responses=[])}), numbered(1))


def test_nothing_to_send_asks_nobody() -> None:
    broker = ScriptedBroker()
    assert len(send(broker, [])) == 0
    assert len(broker.requests) == 3  # the connection's own, who is in the cluster, and who the producer is


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (NewRecord(b"", timestamp_ms=-1), "a timestamp is not negative: -1"),
        (NewRecord(b"", partition=1), "no partition 1"),
    ],
)
def test_what_can_never_be_written_is_refused_before_anything_is_sent(record: NewRecord, says: str) -> None:
    broker = ScriptedBroker({PRODUCE: Log()})
    with pytest.raises(InvalidRecord, match=says):
        send(broker, [NewRecord(b"fine"), record])
    assert broker.asked(PRODUCE) == []


def test_a_topic_that_is_not_there() -> None:
    async def run() -> None:
        async with ScriptedBroker() as broker, Producer(broker.bootstrap, options=QUICK) as producer:
            await producer.send("invoices", b"")

    with pytest.raises(UnknownTopicOrPartition, match="topic invoices: there is no such topic") as raised:
        asyncio.run(run())
    assert raised.value.topic == "invoices"
    assert not raised.value.is_retriable


def test_a_partition_without_a_leader_is_waited_for() -> None:
    log = Log()
    broker = ScriptedBroker({PRODUCE: log})
    broker.leaders[0] = -1

    async def run() -> None:
        async with broker, Producer(broker.bootstrap, options=QUICK) as producer:
            sending = producer.send(TOPIC, b"patient", partition=0)
            while len(broker.asked(METADATA)) < 4:
                await asyncio.sleep(0)
            broker.leaders.clear()
            await sending

    asyncio.run(run())
    assert log.values == {0: [b"patient"]}


def test_a_leader_that_nobody_can_reach() -> None:
    log = Log(lambda _partition, _values: ErrorCode.NOT_LEADER_OR_FOLLOWER if broker.leaders else 0)
    broker = ScriptedBroker({PRODUCE: log})

    async def run() -> None:
        async with broker, Producer(broker.bootstrap, options=IMPATIENT) as producer:
            for _ in range(100):  # until the partition is known: else it could be the topic that was waited for
                with contextlib.suppress(DeliveryTimedOut):
                    await producer.send(TOPIC, b"", partition=0)
                    break
            broker.leaders[0] = 7
            await producer.send(TOPIC, b"", partition=0)

    with pytest.raises(ClientError) as raised:
        asyncio.run(run())
    assert isinstance(raised.value, ServerError | BrokerUnreachable | DeliveryTimedOut)
    assert (raised.value.topic, raised.value.partition) == (TOPIC, 0)


def test_options_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match='acks is "all", "1" or "0", not \'two\''):
        Producer("localhost:9092", acks="two")
    with pytest.raises(ValueError, match="no codec 'zip'"):
        Producer("localhost:9092", codec="zip")
    with pytest.raises(ValueError, match="zstd has no level 99"):
        Producer("localhost:9092", codec="zstd", level=99)
    with pytest.raises(ValueError, match="HOST:PORT"):
        Producer("localhost:port")


def test_no_partition_has_a_leader_for_a_while() -> None:
    log = Log()
    broker = ScriptedBroker({PRODUCE: log}, partition_count=2)
    broker.leaders = {0: -1, 1: -1}

    async def run() -> None:
        async with broker, Producer(broker.bootstrap, options=QUICK) as producer:
            sending = producer.send(TOPIC, b"patient")
            while len(broker.asked(METADATA)) < 4:
                await asyncio.sleep(0)
            broker.leaders.clear()
            await sending

    asyncio.run(run())
    assert sum(map(len, log.values.values())) == 1


def test_new_partitions_are_noticed_when_what_is_known_gets_old() -> None:
    log = Log()
    broker = ScriptedBroker({PRODUCE: log})

    async def run() -> None:
        async with broker, Producer(broker.bootstrap, options=QUICK._replace(metadata_age_ms=0)) as producer:
            await producer.send(TOPIC, b"")
            broker.partition_count = 2
            await producer.send(TOPIC, b"", partition=1)

    asyncio.run(run())
    assert list(log.values) == [0, 1]


# What a producer promises, and the settings that take it back.


def lossy(log: Log, *lost: int) -> Callable[[RequestHeader, Request], ProduceResponse | bytes]:
    """The answers to these requests, by number, are lost after the records were written."""
    numbers = iter(range(1000))

    def answer(header: RequestHeader, request: Request) -> ProduceResponse | bytes:
        answered = log(header, request)
        return CLOSE if next(numbers) in lost else answered

    return answer


@pytest.mark.parametrize(("idempotent", "times"), [(None, 1), (True, 1), (False, 2)])
def test_a_lost_acknowledgement_duplicates_only_where_nothing_is_numbered(idempotent: bool | None, times: int) -> None:
    log = Log()
    broker = ScriptedBroker({PRODUCE: lossy(log, 0)})

    async def run() -> None:
        async with broker, Producer(broker.bootstrap, options=QUICK, idempotent=idempotent) as producer:
            await producer.send(TOPIC, b"once")

    asyncio.run(run())
    assert log.values[0] == [b"once"] * times


@pytest.mark.parametrize(
    ("options", "in_order"),
    [({}, True), ({"idempotent": False, "max_in_flight": 1}, True), ({"idempotent": False}, False)],
)
def test_order_through_retries(options: dict[str, Any], in_order: bool) -> None:
    refused: list[bytes] = []

    def refuse_third(_partition: int, values: list[bytes]) -> int:
        if b"00030" in values and not refused:
            refused.extend(values)
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return 0

    log = Log(refuse_third)
    broker = ScriptedBroker({PRODUCE: log})

    async def run() -> None:
        async with broker, Producer(broker.bootstrap, options=QUICK, batch_bytes=300, **options) as producer:
            await producer.send_many(TOPIC, numbered(200, partition=0))

    asyncio.run(run())
    assert refused
    assert sorted(log.values[0]) == [record.value for record in numbered(200)]
    assert (log.values[0] == sorted(log.values[0])) is in_order


def test_a_broker_that_cannot_number_is_used_without_numbers_unless_they_are_asked_for() -> None:
    def old_versions(_: RequestHeader, __: Request) -> ApiVersionsResponse:
        answer = versions(_, __)
        answer.api_keys = [row for row in answer.api_keys if row.api_key != INIT_PRODUCER_ID.key]
        return answer

    log = Log()
    broker = ScriptedBroker({PRODUCE: log, API_VERSIONS: old_versions})

    async def run(idempotent: bool | None) -> None:
        async with broker, Producer(broker.bootstrap, options=QUICK, idempotent=idempotent) as producer:
            await producer.send(TOPIC, b"plain")

    asyncio.run(run(None))
    assert log.values[0] == [b"plain"]
    assert log.sequences == {}
    with pytest.raises(UnsupportedByBroker, match="idempotent=False"):
        asyncio.run(run(True))


def test_records_that_are_sent_one_by_one_travel_together() -> None:
    log = Log()
    broker = ScriptedBroker({PRODUCE: log})
    called: list[Delivery] = []

    async def run() -> None:
        async with broker, Producer(broker.bootstrap, options=QUICK) as producer:
            sent = [producer.send(TOPIC, b"%d" % number, on_delivery=called.append) for number in range(1000)]
            assert not sent[0].is_done
            assert [delivery.offset for delivery in await asyncio.gather(*sent)] == list(range(1000))
            assert sent[0].is_done

    asyncio.run(run())
    assert log.request_count == 1
    assert [delivery.offset for delivery in called] == list(range(1000))


def test_a_mistake_in_a_callback_does_not_stop_the_producer(caplog: pytest.LogCaptureFixture) -> None:
    def mistake(_: Delivery) -> None:
        raise KeyError("mine")

    async def run(broker: ScriptedBroker) -> None:
        async with broker, Producer(broker.bootstrap, options=QUICK) as producer:
            await producer.send(TOPIC, b"", on_delivery=mistake)
            await producer.send(TOPIC, b"")

    asyncio.run(run(ScriptedBroker({PRODUCE: Log()})))
    assert "a callback on the delivery of a record to topic orders failed" in caplog.text


def test_a_failure_that_nobody_asks_for_is_raised_by_flush_and_by_close() -> None:
    broker = ScriptedBroker({PRODUCE: Log(lambda _, __: ErrorCode.INVALID_RECORD)})

    async def run() -> None:
        async with broker:
            producer = Producer(broker.bootstrap, options=QUICK)
            async with producer:
                producer.send(TOPIC, b"one")
                with pytest.raises(DeliveryFailed, match=r"1 records were not written: topic orders, partition 0"):
                    await producer.flush()
                asked = producer.send(TOPIC, b"two")
                with pytest.raises(ServerError):
                    await asked
                await producer.flush()
                producer.send("nothing", b"three")
                with pytest.raises(DeliveryFailed, match="no such topic"):
                    await producer.close()

    asyncio.run(run())


def test_all_who_wait_are_told_of_what_fails_meanwhile() -> None:
    broker = ScriptedBroker({PRODUCE: Log(lambda _, __: ErrorCode.INVALID_RECORD)})

    async def run() -> None:
        async with broker:
            producer = Producer(broker.bootstrap, options=QUICK)
            await producer.open()
            producer.send(TOPIC, b"one")
            waiting = [producer.flush(), producer.flush(60), producer.close()]
            told = await asyncio.gather(*waiting, return_exceptions=True)
            assert [str(one) for one in told if isinstance(one, DeliveryFailed)] == [str(told[0])] * 3
            await producer.close()

    asyncio.run(run())


def test_a_closed_producer_takes_nothing() -> None:
    async def run() -> None:
        async with ScriptedBroker({PRODUCE: Log()}) as broker:
            async with Producer(broker.bootstrap, options=QUICK) as producer:
                await producer.send(TOPIC, b"")
            with pytest.raises(RuntimeError, match="this producer is closed"):
                producer.send(TOPIC, b"")

    asyncio.run(run())


def test_a_buffer_that_is_full_on_an_event_loop() -> None:
    broker = ScriptedBroker({PRODUCE: Log()})

    async def run() -> None:
        async with broker, Producer(broker.bootstrap, options=QUICK, buffer_bytes=2_000, batch_bytes=500) as producer:
            sent = []
            with pytest.raises(BufferFull):
                sent += [producer.send(TOPIC, bytes(100)) for _ in range(100)]
            await producer.flush()
            await producer.send(TOPIC, b"again")
            await producer.send_many(TOPIC, [bytes(100)] * 100)  # more than fits, but all there is

    asyncio.run(run())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"idempotent": True, "acks": "1"}, 'needs acks="all"'),
        ({"idempotent": True, "max_in_flight": 6}, "at most 5"),
        ({"transactional_id": "t", "idempotent": False}, "transactions need"),
        ({"max_in_flight": 0}, "at least 1"),
        ({"spread": "evenly"}, "round-robin or sticky"),
    ],
)
def test_choices_that_do_not_go_together(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Producer("localhost:9092", **options)


def test_errors_are_plain_values() -> None:
    error = ServerError(ErrorCode.MESSAGE_TOO_LARGE, topic=TOPIC, partition=3)
    for copied in (error.again(), pickle.loads(pickle.dumps(error))):
        assert copied is not error
        assert isinstance(copied, ServerError)
        assert str(copied) == str(error)
        assert (copied.topic, copied.partition, copied.code, copied.advice) == (TOPIC, 3, 10, error.advice)
        assert "max.message.bytes" in copied.__notes__[0]
