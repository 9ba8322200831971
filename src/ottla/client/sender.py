"""Brings the batches of a topic to the leaders of its partitions, in rounds: one batch a partition a time.

So order within a partition needs no numbers, and a batch that has to be sent again holds back only those
behind it. A partition in trouble rests until the others are done.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, MalformedAnswer, ServerError
from ottla.client.metadata import Topic
from ottla.client.retry import Patience
from ottla.records.build import build_from_tuples
from ottla.records.codec import RecordTuple
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

NO_ACKS = 0
LARGEST_REQUEST_BYTES = 8 << 20
_LAST_VERSION_WITHOUT_TOPIC_IDS = 12


@dataclass
class Batch:
    """Records of one partition that travel together, and their places in the caller's list."""

    partition: int
    places: list[int] = field(default_factory=list)
    records: list[RecordTuple] = field(default_factory=list)
    size_bytes: int = 0

    def halves(self) -> tuple[Batch, Batch]:
        middle = len(self.records) // 2
        size_bytes = self.size_bytes // 2
        return (
            Batch(self.partition, self.places[:middle], self.records[:middle], size_bytes),
            Batch(self.partition, self.places[middle:], self.records[middle:], size_bytes),
        )


class Outcome(NamedTuple):
    """What became of a batch. Of one that was refused, `record_errors` are the records that were the reason."""

    base_offset: int = -1
    log_append_time_ms: int = -1
    error: ClientError | None = None
    record_errors: Mapping[int, ClientError] = {}


class Sender(NamedTuple):
    cluster: Cluster
    topic: str
    acks: int
    codec: int
    level: int | None

    async def deliver(self, queues: dict[int, deque[Batch]]) -> AsyncIterator[tuple[Batch, Outcome]]:
        """Each batch with its outcome, as they come. The queues, by partition, are empty in the end."""
        resting: dict[int, ClientError] = {}
        patience = self._patience()
        while queues:
            ready = [queue[0] for partition, queue in queues.items() if partition not in resting]
            if not ready:
                if await patience.pause():
                    resting.clear()
                    continue
                for partition, error in resting.items():
                    for batch in queues.pop(partition):
                        yield batch, Outcome(error=error)
                return
            async for batch, outcome in self._round(ready):
                queue = queues[batch.partition]
                if _is_too_large(outcome) and len(batch.records) > 1:
                    queue.popleft()
                    queue.extendleft(reversed(batch.halves()))
                elif outcome.error is not None and outcome.error.retriable:
                    self.cluster.forget(self.topic)
                    resting[batch.partition] = outcome.error
                else:
                    queue.popleft()
                    if not queue:
                        del queues[batch.partition]
                    if outcome.error is None:
                        patience = self._patience()
                    yield batch, outcome

    def _patience(self) -> Patience:
        return Patience(self.cluster.options.retry_timeout_ms, self.cluster.options.retry_pause_ms)

    async def _round(self, batches: list[Batch]) -> AsyncIterator[tuple[Batch, Outcome]]:
        by_leader: defaultdict[int, list[Batch]] = defaultdict(list)
        for batch in batches:
            try:
                leader = await self.cluster.partition(self.topic, batch.partition)
            except ClientError as error:
                yield batch, Outcome(error=error)
            else:
                by_leader[leader.leader_id].append(batch)
        requests = [(leader, part) for leader, led in by_leader.items() for part in _requests(led)]
        answers = await asyncio.gather(*(self._ask(leader, part) for leader, part in requests))
        for (_, part), outcomes in zip(requests, answers, strict=True):
            for batch in part:
                yield batch, outcomes[batch.partition]

    async def _ask(self, leader_id: int, batches: list[Batch]) -> dict[int, Outcome]:
        try:
            return await self._try(leader_id, batches)
        except ClientError as error:
            return {batch.partition: Outcome(error=error) for batch in batches}

    async def _try(self, leader_id: int, batches: list[Batch]) -> dict[int, Outcome]:
        topic = await self.cluster.topic(self.topic)
        request = self._request(topic, batches)
        at_most = None if topic.has_id else _LAST_VERSION_WITHOUT_TOPIC_IDS
        if self.acks == NO_ACKS:
            connection = await self.cluster.connection(leader_id)
            await connection.tell(request, timeout_ms=self.cluster.options.request_timeout_ms, at_most=at_most)
            return {batch.partition: Outcome() for batch in batches}
        answer = await self.cluster.ask(leader_id, request, ProduceResponse, at_most=at_most)
        rows = {row.index: row for answered in answer.responses for row in answered.partition_responses}
        missing = Outcome(error=MalformedAnswer("the answer to Produce leaves out a partition", topic=self.topic))
        return {
            batch.partition: _outcome(self.topic, rows[batch.partition]) if batch.partition in rows else missing
            for batch in batches
        }

    def _request(self, topic: Topic, batches: list[Batch]) -> ProduceRequest:
        data = [
            PartitionProduceData(
                index=batch.partition, records=build_from_tuples(batch.records, codec=self.codec, level=self.level)
            )
            for batch in batches
        ]
        return ProduceRequest(
            acks=self.acks,
            timeout_ms=self.cluster.options.request_timeout_ms,
            topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=data)],
        )


def _requests(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    """The batches for one leader in portions that a request may have."""
    portion: list[Batch] = []
    size_bytes = 0
    for batch in batches:
        if portion and size_bytes + batch.size_bytes > LARGEST_REQUEST_BYTES:
            yield portion
            portion, size_bytes = [], 0
        portion.append(batch)
        size_bytes += batch.size_bytes
    yield portion


def _outcome(topic: str, row: PartitionProduceResponse) -> Outcome:
    if not row.error_code:
        return Outcome(row.base_offset, row.log_append_time_ms)

    def error(message: str | None) -> ServerError:
        return ServerError(row.error_code, message, topic=topic, partition=row.index)

    record_errors = {bad.batch_index: error(bad.batch_index_error_message) for bad in row.record_errors}
    message = row.error_message
    if row.record_errors:
        reason = row.record_errors[0].batch_index_error_message or message
        message = f"another record of its batch was refused: {reason}"
    return Outcome(error=error(message), record_errors=record_errors)


def _is_too_large(outcome: Outcome) -> bool:
    error = outcome.error
    return isinstance(error, ServerError) and error.code in (
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    )
