"""Produce (0), versions 3 to 13.

A bad partition fails alone. Each partition carries exactly one batch; of a partition that is named twice only the
last counts. Acks 0 gets no answer, and a closed connection where something was wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING, cast

from ottla.broker.quotas import PRODUCER_BYTE_RATE
from ottla.controller.topic_names import INTERNAL
from ottla.log.errors import LogError
from ottla.records.validate import InvalidRecords, LargeBatch, single_batch
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.slices import Job, Steps
    from ottla.broker.transactional_produce import Refusals
    from ottla.log.log import Appended
    from ottla.replica.partition import Partition
    from ottla.wire.parts import Buffer
    from ottla.wire.schema import Response

ALLOWED_ACKS = (-1, 0, 1)
FIRST_VERSION_WITH_TOPIC_IDS = 13


def handle(broker: Broker, request: ProduceRequest, context: Context) -> Response | Steps | None:
    if request.transactional_id is None:
        return _produce(broker, request, context, {})
    from ottla.broker.transactional_produce import when_admitted

    def find(topic: TopicProduceData, data: PartitionProduceData) -> Partition | None:
        return _find(broker, topic, data.index, context.version)

    return when_admitted(broker, request, context, find, lambda refusals: _produce(broker, request, context, refusals))


def _find(broker: Broker, topic: TopicProduceData, index: int, version: int) -> Partition | None:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return broker.topics.partition_by_id(topic.topic_id, index)
    return broker.topics.partition(topic.name, index)


def _produce(
    broker: Broker, request: ProduceRequest, context: Context, refusals: Refusals
) -> ProduceResponse | Steps | None:
    """Append what is not refused by the coordinator of its transaction: at once if that can be, or else in steps."""
    produced = Produced(broker, request, context.version, refusals)
    merged = _merged(request.topic_data)
    if len(merged) == 1 and len(merged[0].partition_data) == 1:
        with contextlib.suppress(LargeBatch):
            return _answer(broker, request, context, produced, [produced.topic(merged[0])])
    context.slices = broker.produce_slices
    context.own_memory = lambda: _own_memory(context, merged)
    return _produce_in_steps(broker, request, context, produced, merged)


def _produce_in_steps(
    broker: Broker, request: ProduceRequest, context: Context, produced: Produced, merged: list[TopicProduceData]
) -> Steps:
    topics = []
    for topic in merged:
        answers = []
        for data in topic.partition_data:
            answers.append((yield from produced.partition_in_steps(topic, data)))
            data.records = None
            yield None
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    return _answer(broker, request, context, produced, topics)


def _own_memory(context: Context, topics: list[TopicProduceData]) -> None:
    """The frame is good only until the handler returns: what outlives it keeps the memory, or has its own copy."""
    if context.connection.leave_memory():
        return
    for topic in topics:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(cast("Buffer", data.records)))


def _answer(
    broker: Broker,
    request: ProduceRequest,
    context: Context,
    produced: Produced,
    topics: list[TopicProduceResponse],
) -> ProduceResponse | None:
    throttle_ms = broker.throttle(PRODUCER_BYTE_RATE, context, context.size_bytes)
    response = ProduceResponse(responses=topics, throttle_time_ms=throttle_ms)
    if request.acks == 0:
        if produced.to_sync:
            broker.durability.when_on_disk(produced.to_sync, lambda _failed: None)
        if produced.failed:
            context.close("a produce request without acknowledgement failed")
        else:
            context.no_reply()
        return None
    if produced.to_sync:
        broker.durability.when_on_disk(produced.to_sync, lambda failed: context.reply(_with_failures(response, failed)))
        return None
    return response


def _merged(topics: list[TopicProduceData]) -> list[TopicProduceData]:
    """Each topic and partition once: what is named again takes the place of what came before."""
    named = {(topic.name, topic.topic_id) for topic in topics if len(topic.partition_data) == 1}
    if len(named) == len(topics):
        return topics
    merged: dict[tuple[str, bytes], dict[int, PartitionProduceData]] = {}
    for topic in topics:
        partitions = merged.setdefault((topic.name, topic.topic_id), {})
        partitions.update((partition.index, partition) for partition in topic.partition_data)
    return [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=list(partitions.values()))
        for (name, topic_id), partitions in merged.items()
    ]


class Produced:
    """The work of one request."""

    def __init__(self, broker: Broker, request: ProduceRequest, version: int, refusals: Refusals) -> None:
        self.failed = False
        self.to_sync: list[tuple[Partition, int]] = []
        self._broker = broker
        self._now_ms = broker.clock_ms()
        self._acks = request.acks
        self._version = version
        self._has_transactional_id = request.transactional_id is not None
        self._refusals = refusals

    def topic(self, topic: TopicProduceData) -> TopicProduceResponse:
        answers = [self._partition(topic, partition) for partition in topic.partition_data]
        return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)

    def partition_in_steps(
        self, topic: TopicProduceData, data: PartitionProduceData
    ) -> Generator[Job | None, None, PartitionProduceResponse]:
        try:
            return self._partition(topic, data)
        except LargeBatch as batch:
            large = LargeBatch(memoryview(bytearray(batch.batch)), batch.header)
        partition = _find(self._broker, topic, data.index, self._version)
        assert partition is not None
        try:
            validated = yield from partition.validate_large(large, self._now_ms)
            if _find(self._broker, topic, data.index, self._version) is not partition:  # it was deleted meanwhile
                return self._refused(data.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if self._comes_too_late(partition, large.batch):
                return self._refused(data.index, ErrorCode.INVALID_TXN_STATE, partition.log.log_start_offset)
            appended = partition.append_validated(validated, self._version, self._now_ms)
        except (InvalidRecords, LogError) as refusal:
            return self._not_appended(partition, data.index, refusal)
        return self._appended(partition, data.index, appended, len(large.batch))

    def _partition(self, topic: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse:
        if self._acks not in ALLOWED_ACKS:
            return self._refused(data.index, ErrorCode.INVALID_REQUIRED_ACKS)
        partition = _find(self._broker, topic, data.index, self._version)
        if partition is None:
            is_known = self._version < FIRST_VERSION_WITH_TOPIC_IDS or topic.topic_id in self._broker.topics.by_id
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_known else ErrorCode.UNKNOWN_TOPIC_ID
            return self._refused(data.index, code)
        if partition.topic in INTERNAL:
            return self._refused(data.index, self._code_for_internal(data))
        refusal = self._refusals.get((partition.topic, partition.index))
        if refusal is not None:
            answer = self._refused(data.index, refusal.code)
            answer.error_message = refusal.message
            return answer
        if self._comes_too_late(partition, cast("Buffer | None", data.records)):
            return self._refused(data.index, ErrorCode.INVALID_TXN_STATE, partition.log.log_start_offset)
        return self._append(partition, data)

    def _comes_too_late(self, partition: Partition, records: Buffer | None) -> bool:
        """Whether a transaction was ended while its write was under way: what comes now would stay undecided."""
        if not self._has_transactional_id:
            return False
        from ottla.broker.transactional_produce import asks_first, is_over

        return asks_first(self._broker, self._version) and is_over(partition, records)

    def _code_for_internal(self, data: PartitionProduceData) -> ErrorCode:
        """Only coordinators write to their topics. What is no batch at all is told first, as Kafka does."""
        try:
            single_batch(cast("Buffer | None", data.records), self._version)
        except InvalidRecords as refusal:
            return refusal.code
        return ErrorCode.INVALID_TOPIC_EXCEPTION

    def _append(self, partition: Partition, data: PartitionProduceData) -> PartitionProduceResponse:
        try:
            appended = partition.produce(
                cast("Buffer | None", data.records),  # read from a frame, it is no file
                version=self._version,
                has_transactional_id=self._has_transactional_id,
                now_ms=self._now_ms,
            )
        except (InvalidRecords, LogError) as refusal:
            return self._not_appended(partition, data.index, refusal)
        return self._appended(partition, data.index, appended, len(cast("Buffer", data.records)))

    def _appended(
        self, partition: Partition, index: int, result: tuple[Appended, int], size_bytes: int
    ) -> PartitionProduceResponse:
        appended, log_append_time_ms = result
        if self._broker.durability.must_wait(partition.log):
            self.to_sync.append((partition, appended.last_offset + 1))
        self._broker.metrics.produced_bytes += size_bytes
        return PartitionProduceResponse(
            index=index,
            error_code=0,
            base_offset=appended.base_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=partition.log.log_start_offset,
        )

    def _not_appended(
        self, partition: Partition, index: int, refusal: InvalidRecords | LogError
    ) -> PartitionProduceResponse:
        if isinstance(refusal, LogError):
            return self._refused(index, ErrorCode(refusal.code), partition.log.log_start_offset)
        log_start_offset = partition.log.log_start_offset if refusal.is_log_reached else -1
        answer = self._refused(index, refusal.code, log_start_offset)
        if refusal.is_told:
            answer.error_message = refusal.message
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=message)
            for number, message in refusal.record_errors
        ]
        return answer

    def _refused(self, index: int, code: ErrorCode, log_start_offset: int = -1) -> PartitionProduceResponse:
        self.failed = True
        return PartitionProduceResponse(index=index, error_code=code, base_offset=-1, log_start_offset=log_start_offset)


def _with_failures(response: ProduceResponse, failed: set[Partition]) -> ProduceResponse:
    """Turn what could not be brought to the disk into a storage error."""
    names = {(partition.topic, partition.index) for partition in failed}
    ids = {(partition.topic_id, partition.index) for partition in failed}
    for topic in response.responses:
        for answer in topic.partition_responses:
            if (topic.name, answer.index) in names or (topic.topic_id, answer.index) in ids:
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                answer.base_offset = -1
    return response
