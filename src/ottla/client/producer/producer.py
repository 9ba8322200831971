"""Writing records: gathered into batches, numbered, sent to the leaders, and an answer for each."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypedDict

from ottla.client.checks import check_functions, check_numbers, check_texts
from ottla.client.errors import (
    ClientError,
    DeliveryFailed,
    InvalidRecord,
    ProducerClosed,
    UnsupportedByBroker,
    raise_for,
)
from ottla.client.group.offsets import TopicPartition
from ottla.client.network.cluster import ClientOptions, Cluster
from ottla.client.producer.batch import ANONYMOUS, Encoding, Identity
from ottla.client.producer.buffer import Buffer, roomy, settled
from ottla.client.producer.buffer_pool import BufferPool
from ottla.client.producer.chunk import Chunk, Copied
from ottla.client.producer.delivery import Deliveries
from ottla.client.producer.many import fill
from ottla.client.producer.produce import NO_ACKS, Produce
from ottla.client.producer.routing import Partitioner, Router
from ottla.client.producer.sender import Sender, SenderOptions
from ottla.client.producer.sending import Sending, check_partition, check_topic, too_large
from ottla.client.producer.statistics import Counts, ProducerStatistics
from ottla.client.producer.transaction import Transaction, TransactionManager
from ottla.client.serde.binding import Serializer, Serializers
from ottla.records import checksum
from ottla.records.batch import CorruptBatch, check_batch
from ottla.records.build import may_be_copied
from ottla.records.compression import NAMES, NONE, codec_number, compress
from ottla.records.read import Batch as ReadBatch
from ottla.wire.apis import INIT_PRODUCER_ID
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    import pyarrow as pa

    Records: TypeAlias = Iterable[Any] | pa.Table | pa.RecordBatch

_logger = logging.getLogger("ottla.client")
ACKS: dict[str | int, int] = {"all": -1, "1": 1, "0": 0, -1: -1, 1: 1, 0: 0}
DEFAULT_MAX_REQUEST_BYTES = 100 << 20
"""As many as brokers take, unless socket.request.max.bytes says otherwise."""
REQUEST_OVERHEAD_BYTES = 1024
LAST_WAIT_SECONDS = 5.0
"""For the end of a transaction that is not known yet, when the producer is closed."""
DEFAULT_BATCH_BYTES = 512 * 1024
DEFAULT_BUFFER_BYTES = 32 << 20
DEFAULT_LINGER_MS = 5.0
LONGEST_COMMON_TIME_MS = 10
"""Records that wait for each other no longer than that share the time of the first, if they have none."""
MOST_IN_FLIGHT = 5  # what brokers remember of a producer, to know again what they have
Spread: TypeAlias = Literal["round-robin", "sticky"]
LEAST = {
    "batch_bytes": 0,
    "linger_ms": 0,
    "buffer_bytes": 1,
    "max_request_bytes": 10_000,
    "max_block_ms": 0,
    "max_in_flight": 1,
    "delivery_timeout_ms": 1,
    "transaction_timeout_ms": 1,
}


class ProducerOptions(TypedDict, total=False):
    """The options of a Producer, for faces that pass them on."""

    acks: str | int
    codec: str
    level: int | None
    batch_bytes: int
    linger_ms: float
    buffer_bytes: int
    max_request_bytes: int
    max_block_ms: int
    max_in_flight: int
    delivery_timeout_ms: int | None
    idempotent: bool | None
    transactional_id: str | None
    transaction_timeout_ms: int
    spread: Spread
    partitioner: Partitioner | None
    key: Serializer | None
    value: Serializer | None
    create_topics: bool
    options: ClientOptions


class Producer(Sending):
    """Writes records. Order within a partition is that of the calls, through retries too.

    `bootstrap`: "host:port,host:port", or a list of them.
    `acks`: "all" in-sync replicas, "1" the leader, "0" nobody.
    `codec`: "none", "gzip", "snappy", "lz4" or "zstd", with a `level` if it has one.
    `batch_bytes`, `linger_ms`: a batch goes out when it is as large, or its first record has waited so long.
    `buffer_bytes`: how much may be on its way. Beyond it `send` blocks for `max_block_ms` at most, then raises
    BufferFull; on an event loop it raises at once.
    `max_request_bytes`: a larger record is refused. What brokers take, see their socket.request.max.bytes.
    `max_in_flight`: requests to one broker that are not answered yet.
    `delivery_timeout_ms`: how long a record may take, all attempts together; else `options.retry_timeout_ms`.
    `idempotent`: what is sent again is written once. If it is not said, it is so where acks are "all" and the
    broker can; without it a record may be written twice, and with `max_in_flight` above 1 in another order.
    `transactional_id`, `transaction_timeout_ms`: for `transaction`.
    `spread`: where records without a key go: "round-robin" one by one, "sticky" by the batch.
    `partitioner`: a function of topic, key and number of partitions that chooses one, or None to leave it.
    `key`, `value`: functions that make bytes of keys and values: see `ottla.client.serde`.
    `create_topics`: topics that do not exist are made, if the broker does that.
    """

    def __init__(
        self, bootstrap: str | Sequence[str], *, acks: str | int = "all", codec: str = "none", level: int | None = None,
        batch_bytes: int = DEFAULT_BATCH_BYTES, linger_ms: float = DEFAULT_LINGER_MS,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES, max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES,
        max_block_ms: int = 60_000, max_in_flight: int = MOST_IN_FLIGHT,
        delivery_timeout_ms: int | None = None, idempotent: bool | None = None, transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000, spread: Spread = "round-robin", partitioner: Partitioner | None = None,
        key: Serializer | None = None, value: Serializer | None = None, create_topics: bool = False,
        options: ClientOptions = ClientOptions(),  # noqa: B008 - immutable
    ) -> None:  # fmt: skip
        self._codec = codec_number(codec)
        _check_level(self._codec, level)
        check_numbers(locals(), LEAST)
        check_texts(transactional_id=transactional_id)
        check_functions(partitioner=partitioner)
        _check_choices(acks, spread, max_in_flight, idempotent, transactional_id)
        self._level = level
        self._acks = ACKS[acks]
        self._idempotent = idempotent
        self._serialize = None if key is None and value is None else Serializers(key, value)
        self._cluster = Cluster(bootstrap, options)
        self._router = Router(sticky_bytes=batch_bytes if spread == "sticky" else 0, partitioner=partitioner)
        self._buffer = Buffer(
            buffer_bytes,
            batch_bytes,
            stamps_each=linger_ms > LONGEST_COMMON_TIME_MS,
            largest_record_bytes=max_request_bytes - REQUEST_OVERHEAD_BYTES,
        )
        self.max_block_ms = max_block_ms
        self._sender_options = SenderOptions(
            batch_bytes,
            linger_ms,
            max_in_flight,
            options.retry_timeout_ms if delivery_timeout_ms is None else delivery_timeout_ms,
            create_topics,
        )
        self._sender: Sender | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._opening = asyncio.Lock()
        self._transactions: TransactionManager | None = None
        if transactional_id is not None:
            self._transactions = TransactionManager(self._cluster, transactional_id, transaction_timeout_ms)

    async def open(self, timeout_seconds: float | None = None) -> Self:
        """Connects. TimeoutError if that takes longer; `async with` does the same, and closes in the end."""
        async with asyncio.timeout(timeout_seconds), self._opening:
            self._check_not_closed()
            if self._task is None:
                try:
                    await self._begin()
                except BaseException:
                    await self._cluster.close()
                    raise
        return self

    def _check_not_closed(self) -> None:
        if self._is_closed:
            raise RuntimeError("this producer is closed: make another one")

    def _check_loop(self) -> None:
        """Nobody on another event loop would be woken."""
        if self._task is not None and asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("this producer was opened on another event loop: there it can be waited for, and closed")

    async def __aenter__(self) -> Self:
        return await self.open()

    async def _begin(self) -> None:
        await self._cluster.open()
        checksum.prepare()
        encoding = Encoding(self._codec, self._level, self._transactions is not None)
        produce = Produce(self._cluster, self._acks, encoding, BufferPool())
        sender = self._sender = Sender(
            self._cluster, self._buffer, self._router, produce, self._sender_options, self._identity
        )
        if self._transactions is not None:
            await self._transactions.begin_with(sender, self._buffer, produce)
        else:
            sender.become(await self._identity())
        self._check_not_closed()  # meanwhile
        self._loop = asyncio.get_running_loop()
        self._buffer.begin(_SenderWakeup(self._loop, sender))
        self._task = asyncio.create_task(sender.run())
        self._task.add_done_callback(self._sender_ended)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.close()
        except ClientError:
            if kind is None:
                raise

    async def close(self, timeout_seconds: float | None = None) -> None:
        """Writes what is on its way, then ends. Raises DeliveryFailed if that failed and nobody has asked for it.

        What is not written within the timeout, or when this is cancelled, fails with ProducerClosed.
        """
        if self._is_closed:
            return
        self._check_loop()
        try:
            if self._task is not None:
                async with asyncio.timeout(timeout_seconds):
                    await self.flush()
        except TimeoutError:
            assert self._sender is not None
            self._sender.fail_all(_closed_too_early())
            if lost := self._sender.failures.take():
                raise DeliveryFailed.unasked(lost) from None
        finally:
            await self._shut_down()

    async def _shut_down(self) -> None:
        self._is_closed = True
        self._buffer.refuse(_closed())
        try:
            if self._transactions is not None and self._sender is not None:
                await self._transactions.close(LAST_WAIT_SECONDS)
        finally:
            # Before anything is awaited, which may be cancelled: nobody waits for ever, and nothing goes on.
            tasks = [] if self._sender is None else self._sender.cancel()
            if self._task is not None:
                self._task.cancel()
                tasks.append(self._task)
            self._buffer.refuse(_closed())  # whatever the end of a transaction has told it
            if self._sender is not None:
                self._sender.fail_all(_closed_too_early())
            try:
                await asyncio.gather(*tasks, return_exceptions=True)
            finally:
                await self._cluster.close()

    def _sender_ended(self, task: asyncio.Task[None]) -> None:
        """Also when an event loop ends and nobody has closed the producer: nobody waits for it for ever."""
        if task.cancelled() and self._sender is not None:
            self._buffer.refuse(_closed())
            self._sender.fail_all(_closed_too_early())

    def _drop(self) -> None:
        """Nobody has the producer any more, and nobody has closed it. In its thread."""
        count = self._buffer.count_unsettled()
        self._buffer.refuse(_closed())
        if count:
            _logger.warning("a producer was dropped, and %d records were not sent: close it, or use `with`", count)
        if self._sender is not None:
            self._sender.fail_all(_closed_too_early())

    async def flush(self, timeout_seconds: float | None = None) -> None:
        """Until all that was sent before is written, or has failed: DeliveryFailed, if nobody has asked for that.

        TimeoutError after `timeout_seconds`; what is on its way is still tried.
        """
        if self._sender is None:
            raise RuntimeError("the producer is not open: use it inside `with`, or call open()")
        self._check_loop()
        self._buffer.close_all()
        with self._sender.failures.awaited() as take_failures:
            async with asyncio.timeout(timeout_seconds):
                for chunk in self._buffer.unsettled():
                    await settled(chunk)
            if lost := take_failures():
                raise DeliveryFailed.unasked(lost)

    async def send_many(self, topic: str, records: Records) -> Deliveries:
        """Writes records and waits for it, in as few requests as there can be. DeliveryFailed if any was not written.

        `records` are NewRecords or plain values, or an Arrow table with a column `value` and, if it has them,
        `key`, `timestamp`, `headers` and `partition`. InvalidRecord, and nothing is sent, where one of them can
        never be written. BufferFull if there is no room within `max_block_ms`.
        """
        self._check_loop()
        chunk = self._chunk(topic, records)
        if chunk.values:
            await self._write([chunk])
        return _deliveries(chunk)

    async def send_batches(self, batches: Iterable[tuple[TopicPartition, bytes | memoryview | ReadBatch]]) -> list[int]:
        """Writes whole record batches as they are, compressed or not, and waits for it; the offset of each.

        For who moves records from one topic to another: `FetchedData.visible` has batches, and `may_be_copied` says
        whether one can be sent on. Bytes are checked before, and what comes from there is checked by the broker.
        DeliveryFailed if any was not written, InvalidRecord if one cannot be.
        """
        self._check_loop()
        chunks = [self._copied(place, batch) for place, batch in batches]
        await self._write(chunks)
        return [_deliveries(chunk)[0].offset for chunk in chunks]

    async def _write(self, chunks: list[Chunk]) -> None:
        """Until all of them are decided. Whoever gives up before is told by `flush` and `close` what has failed."""
        for chunk in chunks:
            chunk.is_whole = chunk.is_observed = True
        try:
            for chunk in chunks:
                await self._roomy()
                self._buffer.admit(chunk)
            for chunk in chunks:
                await settled(chunk)
        except BaseException:
            for chunk in chunks:
                chunk.is_observed = False
            raise

    def _copied(self, place: TopicPartition, given: bytes | memoryview | ReadBatch) -> Chunk:
        check_topic(place.topic)
        check_partition(place.partition, place.topic)
        if isinstance(given, ReadBatch) and self._acks != NO_ACKS:
            header, batch = given
        else:
            batch = given.bytes if isinstance(given, ReadBatch) else memoryview(given)
            try:
                header = check_batch(batch)
            except CorruptBatch as error:
                raise InvalidRecord(str(error), topic=place.topic, partition=place.partition) from error
        if not may_be_copied(header) or header.size != len(batch):
            reason = "only a batch of records without gaps, with times of their own, can be sent on as it is"
            raise InvalidRecord(reason, topic=place.topic, partition=place.partition)
        if header.size > self._buffer.largest_record_bytes:
            raise too_large(place.topic, header.size, self._buffer.largest_record_bytes)
        chunk = Chunk(place.topic, self._buffer.lock, time.monotonic())
        chunk.timestamp_ms = header.base_timestamp
        chunk.copied = Copied(place.partition, batch)
        chunk.values = [None] * header.count
        chunk.filled_bytes = header.size
        return chunk

    def statistics(self) -> ProducerStatistics:
        """What it has done since it was opened, and what it holds now."""
        sender = self._sender
        counts = Counts() if sender is None else sender.counts
        return ProducerStatistics(
            **vars(counts),
            requests_in_flight=0 if sender is None else sender.requests_in_flight,
            buffered_bytes=self._buffer.used_bytes,
            buffer_limit_bytes=self._buffer.limit_bytes,
        )

    def transaction(self) -> Transaction:
        """All that is sent inside is visible together, or not at all: `async with producer.transaction() as t`.

        An exception that leaves the block aborts it. Needs a `transactional_id`.
        """
        if self._transactions is None:
            raise RuntimeError("a producer without a transactional_id has no transactions")
        return Transaction(self._transactions, self.flush)

    async def _identity(self) -> Identity:
        wanted = self._idempotent is not False and self._acks == ACKS["all"]
        if not wanted:
            return ANONYMOUS
        if await self._cluster.retry(lambda: self._cluster.highest_version(INIT_PRODUCER_ID)) < 0:
            if self._idempotent:
                raise UnsupportedByBroker("the broker has no idempotent producers: set idempotent=False")
            return ANONYMOUS

        async def attempt() -> Identity:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            answer = await self._cluster.ask_any(request, InitProducerIdResponse)
            raise_for(answer.error_code, about="the producer's id")
            return Identity(answer.producer_id, answer.producer_epoch)

        return await self._cluster.retry(attempt)

    async def _roomy(self) -> None:
        """Wait for room in the buffer as those do who block."""
        if self._buffer.has_room:
            return
        try:
            async with asyncio.timeout(self.max_block_ms / 1000):
                await roomy(self._buffer)
        except TimeoutError:
            raise self._buffer.full() from None

    def _chunk(self, topic: str, records: Any) -> Chunk:
        check_topic(topic)
        chunk = Chunk(topic, self._buffer.lock, time.monotonic())
        chunk.timestamp_ms = time.time_ns() // 1_000_000
        if hasattr(records, "schema"):
            from ottla.client.producer.arrow import fill_from_arrow

            fill_from_arrow(chunk, records)
        else:
            fill(chunk, records if isinstance(records, list) else list(records), self._serialize)
        if chunk.values:
            ends = chunk.weigh()
            chunk.filled_bytes = ends[-1]
            if ends[-1] > self._buffer.largest_record_bytes:
                _check_sizes(topic, ends, self._buffer.largest_record_bytes)
        return chunk


def _deliveries(chunk: Chunk) -> Deliveries:
    """What became of records that somebody has waited for; raises if any was not written."""
    if isinstance(chunk.error, InvalidRecord | UnsupportedByBroker) or (chunk.error and not chunk.pieces):
        raise chunk.error.again()
    if chunk.has_failures:
        raise DeliveryFailed(chunk.deliveries())
    return Deliveries(chunk)


class _SenderWakeup:
    """Wakes the sender from any thread, once until it has woken. Made on the sender's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sender: Sender) -> None:
        self._loop = loop
        self._sender = sender
        self._thread = threading.get_ident()
        self._is_set = False

    def __call__(self) -> None:
        if threading.get_ident() == self._thread:
            self._sender.wake()
        elif not self._is_set:
            self._is_set = True
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._is_set = False
        self._sender.wake()


def _check_sizes(topic: str, ends: Sequence[int], limit_bytes: int) -> None:
    largest = max(end - start for start, end in zip((0, *ends), ends, strict=False))
    if largest > limit_bytes:
        raise too_large(topic, largest, limit_bytes)


def _closed() -> RuntimeError:
    return RuntimeError("this producer is closed")


def _closed_too_early() -> ProducerClosed:
    return ProducerClosed("the producer was closed before this was acknowledged: it may have been written")


def _check_level(codec: int, level: int | None) -> None:
    """ValueError for a level that the codec does not have: better now than with the first batch."""
    if codec == NONE or level is None:
        return
    try:
        compress(codec, b"", level)
    except ValueError as error:
        raise ValueError(f"{NAMES[codec]} has no level {level}") from error


def _check_choices(
    acks: str | int, spread: str, max_in_flight: int, idempotent: bool | None, transactional_id: str | None
) -> None:
    if isinstance(acks, bool) or acks not in ACKS:
        raise ValueError(f'acks is "all", "1" or "0", not {acks!r}')
    if not isinstance(idempotent, bool | None):
        raise TypeError(f"idempotent is True, False or None, not {idempotent!r}")
    if spread not in ("round-robin", "sticky"):
        raise ValueError(f"spread is round-robin or sticky, not {spread!r}")
    if idempotent is False and transactional_id is not None:
        raise ValueError("transactions need an idempotent producer")
    if idempotent or transactional_id is not None:
        if ACKS[acks] != ACKS["all"]:
            raise ValueError(f'an idempotent producer needs acks="all", not {acks!r}')
        if max_in_flight > MOST_IN_FLIGHT:
            raise ValueError(f"an idempotent producer has at most {MOST_IN_FLIGHT} requests in flight")
