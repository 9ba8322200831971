"""Writing records: gathered into batches, numbered, sent to the leaders, and an answer for each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypedDict

from ottla.client.errors import ClientError, DeliveryFailed, InvalidRecord, UnsupportedByBroker, raise_for
from ottla.client.network.cluster import ClientOptions, Cluster
from ottla.client.producer.batch import ANONYMOUS, Encoding, Identity
from ottla.client.producer.buffer import Buffer, settled
from ottla.client.producer.buffer_pool import BufferPool
from ottla.client.producer.chunk import Chunk
from ottla.client.producer.delivery import Deliveries
from ottla.client.producer.produce import Produce
from ottla.client.producer.routing import NewRecord, Router
from ottla.client.producer.sender import Sender, SenderOptions
from ottla.client.producer.sending import Sending, as_bytes
from ottla.client.producer.transaction import Transaction, TransactionManager
from ottla.records.codec import holds_bytes
from ottla.records.compression import NAMES, NONE, codec_number, compress
from ottla.wire.apis import INIT_PRODUCER_ID
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    import pyarrow as pa

    Records: TypeAlias = Iterable[NewRecord | bytes | None] | pa.Table | pa.RecordBatch

ACKS = {"all": -1, "1": 1, "0": 0}
DEFAULT_BATCH_BYTES = 512 * 1024
DEFAULT_BUFFER_BYTES = 32 << 20
DEFAULT_LINGER_MS = 5.0
LONGEST_COMMON_TIME_MS = 10
"""Records that wait for each other no longer than that share the time of the first, if they have none."""
MOST_IN_FLIGHT = 5  # what brokers remember of a producer, to know again what they have
Spread: TypeAlias = Literal["round-robin", "sticky"]


class ProducerOptions(TypedDict, total=False):
    """The options of a Producer, for faces that pass them on."""

    acks: str
    codec: str
    level: int | None
    batch_bytes: int
    linger_ms: float
    buffer_bytes: int
    max_block_ms: int
    max_in_flight: int
    delivery_timeout_ms: int | None
    idempotent: bool | None
    transactional_id: str | None
    transaction_timeout_ms: int
    spread: Spread
    create_topics: bool
    options: ClientOptions


class Producer(Sending):
    """Writes records. Order within a partition is that of the calls, through retries too.

    `acks`: "all" in-sync replicas, "1" the leader, "0" nobody.
    `idempotent`: what is sent again is written once. If it is not said, it is so where acks are "all" and the
    broker can; without it a record may be written twice, and with `max_in_flight` above 1 in another order.
    `delivery_timeout_ms`: how long a record may take, all attempts together; else `options.retry_timeout_ms`.
    `buffer_bytes`: how much may be on its way. Beyond it `send` blocks for `max_block_ms` at most, then raises
    BufferFull; on an event loop it raises at once.
    `spread`: where records without a key go: "round-robin" one by one, "sticky" by the batch.
    """

    def __init__(
        self, bootstrap: str, *, acks: str = "all", codec: str = "none", level: int | None = None,
        batch_bytes: int = DEFAULT_BATCH_BYTES, linger_ms: float = DEFAULT_LINGER_MS,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES, max_block_ms: int = 60_000, max_in_flight: int = MOST_IN_FLIGHT,
        delivery_timeout_ms: int | None = None, idempotent: bool | None = None, transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000, spread: Spread = "round-robin", create_topics: bool = False,
        options: ClientOptions = ClientOptions(),  # noqa: B008 - immutable
    ) -> None:  # fmt: skip
        self._codec = codec_number(codec)
        _check_level(self._codec, level)
        _check_choices(acks, spread, max_in_flight, idempotent, transactional_id)
        self._level = level
        self._acks = ACKS[acks]
        self._idempotent = idempotent
        self._cluster = Cluster(bootstrap, options)
        self._router = Router(sticky_bytes=batch_bytes if spread == "sticky" else 0)
        self._buffer = Buffer(buffer_bytes, batch_bytes, stamps_each=linger_ms > LONGEST_COMMON_TIME_MS)
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
        self._transactions: TransactionManager | None = None
        if transactional_id is not None:
            self._transactions = TransactionManager(self._cluster, transactional_id, transaction_timeout_ms)

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseException:
            await self._cluster.close()
            raise
        return self

    async def _begin(self) -> None:
        await self._cluster.open()
        encoding = Encoding(self._codec, self._level, self._transactions is not None)
        produce = Produce(self._cluster, self._acks, encoding, BufferPool())
        sender = self._sender = Sender(self._cluster, self._buffer, self._router, produce, self._sender_options)
        if self._transactions is not None:
            await self._transactions.begin_with(sender, self._buffer, produce)
        else:
            sender.become(await self._identity())
        self._buffer.notify = _Bell(asyncio.get_running_loop(), sender)
        self._task = asyncio.create_task(sender.run())

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.close()
        except ClientError:
            if kind is None:
                raise

    async def close(self) -> None:
        """Writes what is on its way, then ends. Raises DeliveryFailed if that failed and nobody has asked for it."""
        try:
            if self._task is not None:
                await self.flush()
        finally:
            self._buffer.refuse(RuntimeError("this producer is closed"))
            if self._task is not None and self._sender is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
                await self._sender.stop()
                self._task = None
            await self._cluster.close()

    async def flush(self) -> None:
        """Until all that was sent before is written, or has failed: DeliveryFailed, if nobody has asked for that."""
        self._buffer.close_all()
        for chunk in self._buffer.unsettled():
            await settled(chunk)
        assert self._sender is not None
        lost = self._sender.take_lost()
        if lost:
            raise DeliveryFailed.unasked(lost)

    async def send_many(self, topic: str, records: Records) -> Deliveries:
        """Writes records and waits for it, in as few requests as there can be. DeliveryFailed if any was not written.

        `records` are NewRecords or plain values, or an Arrow table with a column `value` and, if it has them,
        `key`, `timestamp`, `headers` and `partition`. InvalidRecord, and nothing is sent, where one of them can
        never be written.
        """
        chunk = self._chunk(topic, records)
        chunk.is_observed = True
        if chunk.values:
            await self._roomy()
            self._buffer.admit(chunk)
            await settled(chunk)
        if isinstance(chunk.error, InvalidRecord | UnsupportedByBroker) or (chunk.error and not chunk.pieces):
            raise chunk.error.again()
        if chunk.has_failures:
            raise DeliveryFailed(chunk.deliveries())
        return Deliveries(chunk)

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
        deadline = time.monotonic() + self.max_block_ms / 1000
        while not self._buffer.has_room:
            oldest = min(self._buffer.unsettled(), key=lambda chunk: chunk.opened_at)
            await settled(oldest)
            if time.monotonic() > deadline:
                raise self._buffer.full()

    def _chunk(self, topic: str, records: Any) -> Chunk:
        if not topic:
            raise InvalidRecord("a record needs a topic")
        chunk = Chunk(topic, self._buffer.lock, time.monotonic())
        chunk.timestamp_ms = time.time_ns() // 1_000_000
        if hasattr(records, "schema"):
            from ottla.client.producer.arrow import fill_from_arrow

            fill_from_arrow(chunk, records)
        else:
            _fill(chunk, records if isinstance(records, list) else list(records))
        if chunk.values:
            chunk.filled_bytes = chunk.weigh()[-1]
        return chunk


class _Bell:
    """Wakes the sender from any thread, once until it has woken."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sender: Sender) -> None:
        self._loop = loop
        self._sender = sender
        self._is_ringing = False

    def __call__(self) -> None:
        if not self._is_ringing:
            self._is_ringing = True
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._is_ringing = False
        self._sender.wake()


def _fill(chunk: Chunk, records: list[Any]) -> None:
    if holds_bytes(records):
        chunk.values = records.copy()
        return
    given = [record if isinstance(record, NewRecord) else NewRecord(record) for record in records]
    for record in given:
        if record.timestamp_ms is not None and record.timestamp_ms < 0:
            raise InvalidRecord(f"a timestamp is not negative: {record.timestamp_ms}", topic=chunk.topic)
    chunk.values = [_checked("value", record.value) for record in given]
    keys = [_checked("key", record.key) for record in given]
    chunk.keys = keys if any(key is not None for key in keys) else None
    chunk.headers = [record.headers for record in given] if any(record.headers for record in given) else None
    if any(record.partition is not None for record in given):
        chunk.partitions = [record.partition for record in given]
    if any(record.timestamp_ms is not None for record in given):
        now_ms = chunk.timestamp_ms
        chunk.timestamps = [now_ms if record.timestamp_ms is None else record.timestamp_ms for record in given]


def _checked(what: str, value: bytes | None) -> bytes | None:
    return value if value is None or type(value) is bytes else as_bytes(what, value)


def _check_level(codec: int, level: int | None) -> None:
    """ValueError for a level that the codec does not have: better now than with the first batch."""
    if codec == NONE or level is None:
        return
    try:
        compress(codec, b"", level)
    except ValueError as error:
        raise ValueError(f"{NAMES[codec]} has no level {level}") from error


def _check_choices(
    acks: str, spread: str, max_in_flight: int, idempotent: bool | None, transactional_id: str | None
) -> None:
    if acks not in ACKS:
        raise ValueError(f"acks is one of {', '.join(ACKS)}, not {acks!r}")
    if spread not in ("round-robin", "sticky"):
        raise ValueError(f"spread is round-robin or sticky, not {spread!r}")
    if max_in_flight < 1:
        raise ValueError(f"max_in_flight is at least 1, not {max_in_flight}")
    if idempotent is False and transactional_id is not None:
        raise ValueError("transactions need an idempotent producer")
    if idempotent or transactional_id is not None:
        if ACKS[acks] != ACKS["all"]:
            raise ValueError(f'an idempotent producer needs acks="all", not {acks!r}')
        if max_in_flight > MOST_IN_FLIGHT:
            raise ValueError(f"an idempotent producer has at most {MOST_IN_FLIGHT} requests in flight")
