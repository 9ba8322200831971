"""Writing records: given as a list, gathered into batches, sent to the leaders, and an answer for each record."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self, TypedDict

from ottla.client.cluster import ClientOptions, Cluster
from ottla.client.errors import ClientError, DeliveryFailed, InvalidRecord, ServerError
from ottla.client.metadata import Topic
from ottla.client.routing import NewRecord, Router
from ottla.client.sender import Batch, Sender
from ottla.records.compression import NAMES, NONE, codec_number, compress

ACKS = {"all": -1, "1": 1, "0": 0}
DEFAULT_BATCH_BYTES = 512 * 1024
_RECORD_OVERHEAD_BYTES = 24  # lengths, deltas and attributes, at most that many for records of usual sizes
NO_OFFSET = -1


class Delivery(NamedTuple):
    """What became of one record. The offset is -1 where the broker was not to answer, or there is an error."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    error: ClientError | None = None


class ProducerOptions(TypedDict, total=False):
    """The options of a Producer, for faces that pass them on."""

    acks: str
    codec: str
    level: int | None
    batch_bytes: int
    create_topics: bool
    options: ClientOptions


class Producer:
    """Writes lists of records. Order within a partition is that of the list, through retries too.

    A record may be written twice when an acknowledgement is lost, as with any producer that is not idempotent.
    `acks`: "all" in-sync replicas, "1" the leader, "0" nobody.
    A partition that takes nothing for `retry_timeout_ms` fails.
    """

    def __init__(
        self, bootstrap: str, *, acks: str = "all", codec: str = "none", level: int | None = None,
        batch_bytes: int = DEFAULT_BATCH_BYTES, create_topics: bool = False,
        options: ClientOptions = ClientOptions(),  # noqa: B008 - immutable
    ) -> None:  # fmt: skip
        if acks not in ACKS:
            raise ValueError(f"acks is one of {', '.join(ACKS)}, not {acks!r}")
        self._cluster = Cluster(bootstrap, options)
        self._acks = ACKS[acks]
        self._codec = codec_number(codec)
        _check_level(self._codec, level)
        self._level = level
        self._batch_bytes = batch_bytes
        self._create_topics = create_topics
        self._router = Router()

    async def __aenter__(self) -> Self:
        await self._cluster.refresh([])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._cluster.close()

    async def send(
        self, topic: str, value: bytes | None, *, key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (), partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:  # fmt: skip
        """Write one record. DeliveryFailed tells why it was not."""
        [delivery] = await self.send_many(topic, [NewRecord(value, key, headers, partition, timestamp_ms)])
        return delivery

    async def send_many(self, topic: str, records: Iterable[NewRecord]) -> list[Delivery]:
        """Write records, in as few requests as there can be. DeliveryFailed if any was not written.

        InvalidRecord, and nothing is sent, where one of them can never be written.
        """
        given = list(records)
        if not given:
            return []
        queues = await self._cluster.retry(lambda: self._batches(topic, given))
        deliveries: list[Delivery | None] = [None] * len(given)
        sender = Sender(self._cluster, topic, self._acks, self._codec, self._level)
        async for batch, outcome in sender.deliver(queues):
            for number, (place, record) in enumerate(zip(batch.places, batch.records, strict=True)):
                deliveries[place] = Delivery(
                    topic,
                    batch.partition,
                    NO_OFFSET if outcome.base_offset < 0 else outcome.base_offset + number,
                    record[0] if outcome.log_append_time_ms < 0 else outcome.log_append_time_ms,
                    outcome.record_errors.get(number, outcome.error),
                )
        done = [delivery for delivery in deliveries if delivery is not None]
        assert len(done) == len(given)
        if any(delivery.error is not None for delivery in done):
            raise DeliveryFailed(done)
        return done

    async def _batches(self, topic: str, records: Sequence[NewRecord]) -> dict[int, deque[Batch]]:
        """The records of each partition in batches of a size that a broker takes."""
        known = await self._cluster.topic(topic, allow_creation=self._create_topics)
        now_ms = time.time_ns() // 1_000_000
        queues: defaultdict[int, deque[Batch]] = defaultdict(deque)
        for place, record in enumerate(records):
            _check(topic, record)
            partition = self._route(known, record)
            queue = queues[partition]
            size_bytes = _size_bytes(record)
            if not queue or queue[-1].size_bytes + size_bytes > self._batch_bytes:
                queue.append(Batch(partition))
            batch = queue[-1]
            timestamp_ms = now_ms if record.timestamp_ms is None else record.timestamp_ms
            batch.places.append(place)
            batch.records.append((timestamp_ms, record.key, record.value, record.headers))
            batch.size_bytes += size_bytes
        return queues

    def _route(self, topic: Topic, record: NewRecord) -> int:
        try:
            return self._router.route(topic, record)
        except ServerError:
            self._cluster.forget(topic.name)
            raise


def _check_level(codec: int, level: int | None) -> None:
    """ValueError for a level that the codec does not have: better now than with the first batch."""
    if codec == NONE or level is None:
        return
    try:
        compress(codec, b"", level)
    except ValueError as error:
        raise ValueError(f"{NAMES[codec]} has no level {level}") from error


def _check(topic: str, record: NewRecord) -> None:
    if not topic:
        raise InvalidRecord("a record needs a topic")
    if record.timestamp_ms is not None and record.timestamp_ms < 0:
        raise InvalidRecord(f"a timestamp is not negative: {record.timestamp_ms}", topic=topic)


def _size_bytes(record: NewRecord) -> int:
    size_bytes = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    return size_bytes + sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
