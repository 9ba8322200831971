"""One Produce request with batches of several partitions, and what its answer says of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.errors import BrokerUnreachable, ClientError, InvalidRecord, MalformedAnswer, ServerError
from ottla.client.network.cluster import Cluster
from ottla.client.network.metadata import Topic
from ottla.client.producer.batch import Batch, Encoding
from ottla.client.producer.buffer_pool import BufferPool
from ottla.client.producer.delivery import Outcome
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

NO_ACKS = 0
_LAST_VERSION_WITHOUT_TOPIC_IDS = 12
_LAST_VERSION_OF_OLD_TRANSACTIONS = 11  # from 12 on a partition joins the transaction by being written to
_OF_DAMAGE = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
"""What brokers say to a batch that is damaged, or that would be cut if it were not."""


class Produce(NamedTuple):
    """How to ask."""

    cluster: Cluster
    acks: int
    encoding: Encoding
    pool: BufferPool
    transactional_id: str | None = None
    joins_by_writing: bool = True

    async def send(self, node_id: int, batches: list[Batch]) -> dict[Batch, Outcome]:
        """What became of each batch; no error is raised."""
        outcomes = {batch: Outcome(error=error) for batch in batches if (error := self._encode(batch)) is not None}
        sound = [batch for batch in batches if batch not in outcomes]
        if sound:
            try:
                outcomes |= await self._try(node_id, sound)
            except ClientError as error:
                outcomes |= {batch: Outcome(error=_placed(error, batch)) for batch in sound}
        return outcomes

    def _encode(self, batch: Batch) -> ClientError | None:
        """Before anything is awaited: from here on the batch is its bytes."""
        try:
            batch.encode(self.encoding, self.pool)
        except (ValueError, TypeError, OverflowError) as error:
            return _placed(InvalidRecord(str(error)), batch)
        return None

    async def _try(self, node_id: int, batches: list[Batch]) -> dict[Batch, Outcome]:
        # In the order of the batches: what goes out depends on nothing but what came in.
        names = dict.fromkeys(batch.queue.topic for batch in batches)
        # As it is known, however old: to ask here would let a later request overtake this one.
        topics = {name: topic for name in names if (topic := self.cluster.last_known(name)) is not None}
        connection = await self.cluster.connection(node_id)
        # What was given up meanwhile has no bytes any more, and is not sent; nor is what is of a topic that went away.
        unsent = {batch: Outcome(error=BrokerUnreachable("not sent")) for batch in batches if batch.encoded is None}
        for batch in batches:
            if batch.queue.topic not in topics:
                unsent[batch] = Outcome(error=_placed(ServerError(ErrorCode.LEADER_NOT_AVAILABLE), batch))
        batches = [batch for batch in batches if batch not in unsent]
        if not batches:
            return unsent
        request = self._request(topics, batches)
        at_most = None if all(topic.has_id for topic in topics.values()) else _LAST_VERSION_WITHOUT_TOPIC_IDS
        if not self.joins_by_writing:
            at_most = _LAST_VERSION_OF_OLD_TRANSACTIONS
        timeout_ms = self.cluster.options.request_timeout_ms
        if self.acks == NO_ACKS:
            await connection.tell(request, timeout_ms=timeout_ms, at_most=at_most)
            return dict.fromkeys(batches, Outcome()) | unsent
        answer = await connection.ask(request, ProduceResponse, timeout_ms=timeout_ms, at_most=at_most)
        rows = _rows(topics, answer)
        self.cluster.take_hints(
            answer.node_endpoints, ((topic, index, row.current_leader) for (topic, index), row in rows.items())
        )
        for (name, _), row in rows.items():
            if row.error_code == ErrorCode.UNKNOWN_TOPIC_ID and name in topics:
                self.cluster.doubt_id(name, topics[name].topic_id)
        return {batch: _outcome(batch, rows.get((batch.queue.topic, batch.queue.index))) for batch in batches} | unsent

    def _request(self, topics: Mapping[str, Topic], batches: Iterable[Batch]) -> ProduceRequest:
        data: defaultdict[str, list[PartitionProduceData]] = defaultdict(list)
        for batch in batches:
            records = batch.encode(self.encoding, self.pool)  # as it was encoded before
            data[batch.queue.topic].append(PartitionProduceData(index=batch.queue.index, records=records))
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self.acks,
            timeout_ms=self.cluster.options.request_timeout_ms,
            topic_data=[
                TopicProduceData(name=name, topic_id=topics[name].topic_id, partition_data=partitions)
                for name, partitions in data.items()
            ],
        )


def _rows(topics: Mapping[str, Topic], answer: ProduceResponse) -> dict[tuple[str, int], PartitionProduceResponse]:
    names = {topic.topic_id: name for name, topic in topics.items()}
    return {
        (answered.name or names.get(answered.topic_id, ""), row.index): row
        for answered in answer.responses
        for row in answered.partition_responses
    }


def _outcome(batch: Batch, row: PartitionProduceResponse | None) -> Outcome:
    topic, index = batch.queue.topic, batch.queue.index
    if row is None:
        sentence = "the answer to Produce leaves out a partition"
        return Outcome(error=MalformedAnswer(sentence, topic=topic, partition=index))
    if not row.error_code:
        return Outcome(row.base_offset, row.log_append_time_ms)
    if row.error_code in _OF_DAMAGE and (reason := batch.why_damaged):
        return Outcome(error=InvalidRecord(reason, topic=topic, partition=index))

    def error(message: str | None) -> ServerError:
        return ServerError(row.error_code, message, topic=topic, partition=index)

    record_errors = {bad.batch_index: error(bad.batch_index_error_message) for bad in row.record_errors}
    message = row.error_message
    if row.record_errors:
        reason = row.record_errors[0].batch_index_error_message or message
        message = f"another record of its batch was refused: {reason}"
    return Outcome(error=error(message), record_errors=record_errors)


def _placed(error: ClientError, batch: Batch) -> ClientError:
    """An error of the connection concerns each partition."""
    placed = error.again()
    if placed.topic is None:
        placed.topic, placed.partition = batch.queue.topic, batch.queue.index
    return placed
