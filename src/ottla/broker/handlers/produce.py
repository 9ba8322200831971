"""Produce (0), versions 3 to 13.

A bad partition fails alone. Each partition carries exactly one batch; of a partition that is named twice only the
last counts. Acks 0 gets no answer, and a closed connection where something was wrong.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.leaders import FIRST_PRODUCE_WITH_LEADER, hint_producer
from ottla.broker.quotas.quotas import PRODUCER_BYTE_RATE
from ottla.controller.topic_names import INTERNAL
from ottla.log.errors import LogError
from ottla.records.validate import InvalidRecords, LargeBatch, MisplacedKeys, single_batch
from ottla.replica.acknowledgements import NEVER
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
    from ottla.broker.coordinators.transactional_produce import Refusals
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Job, Steps
    from ottla.log.log import Appended
    from ottla.replica.partition import Partition
    from ottla.wire.parts import Buffer
    from ottla.wire.schema import Response

FIRST_VERSION_WITH_TOPIC_IDS = 13
ALLOWED_ACKS = (-1, 0, 1)
AT_ONCE_BYTES = 1 << 16  # a larger request of several partitions lets others in between
AT_ONCE_PARTITIONS = 50  # and so does one of more: the first record of each makes a folder

# By positions, which costs half as much as by names.
_partition_response: Any = PartitionProduceResponse
_topic_response: Any = TopicProduceResponse
_response: Any = ProduceResponse


def handle(
    broker: Broker, request: ProduceRequest, context: Context, refusals: Refusals | None = None
) -> Response | Steps | None:
    """Append what is not refused by the coordinator of its transaction: at once if that can be, or else in steps."""
    if request.transactional_id is not None and refusals is None:
        return _when_admitted(broker, request, context)
    topics = request.topic_data
    is_one = len(topics) == 1 and len(topics[0].partition_data) == 1
    if not is_one:
        topics = _merged(topics)
    produced = Produced(broker, request, context, refusals, topics)
    if not is_one and (
        context.size_bytes > AT_ONCE_BYTES or sum([len(topic.partition_data) for topic in topics]) > AT_ONCE_PARTITIONS
    ):
        return produced.in_steps()
    try:
        for topic in topics:
            answers = produced.begin(topic)
            for data in topic.partition_data:
                answers.append(produced.partition(topic, data))
    except LargeBatch:
        return produced.in_steps()
    produced.appended()
    return None


def _when_admitted(broker: Broker, request: ProduceRequest, context: Context) -> Response | Steps | None:
    """Produce in a transaction, whose coordinator may have to be asked before."""
    from ottla.broker.coordinators.transactional_produce import when_admitted

    return when_admitted(
        broker,
        request,
        context,
        lambda topic, data: _find(broker, topic, data.index, context.version),
        lambda refusals: handle(broker, request, context, refusals),
    )


def _find(broker: Broker, topic: TopicProduceData, index: int, version: int) -> Partition | None:
    topics = broker.topics
    known = (
        topics.by_name.get(topic.name) if version < FIRST_VERSION_WITH_TOPIC_IDS else topics.by_id.get(topic.topic_id)
    )
    return None if known is None else known.replicas.get(index)


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
    """The work of one request, which is answered when all that it appended is acknowledged."""

    __slots__ = (
        "_acks",
        "_broker",
        "_context",
        "_failed",
        "_has_transactional_id",
        "_left",
        "_now_ms",
        "_refusals",
        "_throttle_ms",
        "_timeout_ms",
        "_topics",
        "_version",
        "answers",
    )

    def __init__(
        self,
        broker: Broker,
        request: ProduceRequest,
        context: Context,
        refusals: Refusals | None,
        topics: list[TopicProduceData],
    ) -> None:
        self._broker = broker
        self._context = context
        self._topics = topics
        self.answers: list[TopicProduceResponse] = []
        self._now_ms = broker.clock_ms()
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._version = context.header.version
        self._has_transactional_id = request.transactional_id is not None
        self._refusals = refusals
        self._failed = False
        self._left = 1  # appends that are not acknowledged, and the request itself
        self._throttle_ms = 0

    def begin(self, topic: TopicProduceData) -> list[PartitionProduceResponse]:
        """Where the answers for the partitions of a topic go."""
        answers: list[PartitionProduceResponse] = []
        self.answers.append(_topic_response(answers, topic.name, topic.topic_id))
        return answers

    # Acknowledging

    def appended(self) -> None:
        """All partitions have been dealt with; answer if none of them has to be waited for."""
        context = self._context
        self._topics = []  # who waits, maybe for the disk, needs nothing of the frame any more
        if self._broker.quotas.are_set:
            self._throttle_ms = self._broker.throttle(PRODUCER_BYTE_RATE, context, context.size_bytes)
        self._left -= 1
        if not self._left:
            self._answer()

    def committed(self, append: tuple[PartitionProduceResponse, int], failure: LogError | None) -> None:
        """One of the appends is acknowledged, or failed."""
        answer, size_bytes = append
        if failure is None:
            self._broker.metrics.produced_bytes += size_bytes
        else:
            self._failed = True
            answer.error_code = ErrorCode(failure.code)
            answer.base_offset = answer.log_append_time_ms = -1
        self._left -= 1
        if not self._left:
            try:
                self._answer()
            except Exception:  # it must not reach the partition, which has others to tell
                self._broker.report_bug(self._context.header)
                self._context.connection.close("the broker failed")

    def _answer(self) -> None:
        context = self._context
        if self._acks:
            response = _response(self.answers, self._throttle_ms)
            if self._failed and self._version >= FIRST_PRODUCE_WITH_LEADER:
                hint_producer(self._broker, context.connection, response)
            context.reply(response)
        elif self._failed:
            context.close("a produce request without acknowledgement failed")
        else:
            context.no_reply()

    # Appending

    def partition(self, topic: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse:
        index, version, acks = data.index, self._version, self._acks
        if acks not in ALLOWED_ACKS:
            return self._refused(index, ErrorCode.INVALID_REQUIRED_ACKS)
        partition = _find(self._broker, topic, index, version)
        if partition is None:
            named = topic.name if version < FIRST_VERSION_WITH_TOPIC_IDS else topic.topic_id
            return self._refused(index, self._broker.topics.missing_code(named, index))
        records: Any = data.records  # read from a frame, it is no file
        if partition.topic in INTERNAL:
            return self._refused(index, self._code_for_internal(records))
        acquaintance = self._context.connection.acquaintance
        if partition.topic not in acquaintance.topics:
            acquaintance.add(partition.topic)
        placement = partition.log.placement
        if placement is not None and placement.is_paused:
            self._broker.growing.sent_away(partition.topic, self._context.connection)
            return self._refused(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self._refusals:
            refusal = self._refusals.get((partition.topic, partition.index))
            if refusal is not None:
                answer = self._refused(index, refusal.code)
                answer.error_message = refusal.message
                return answer
        if self._has_transactional_id and self._comes_too_late(partition, records):
            return self._refused(index, ErrorCode.INVALID_TXN_STATE, partition.log.log_start_offset)
        try:
            result = partition.writer.produce(records, version, self._now_ms, acks, self._has_transactional_id)
        except MisplacedKeys as refusal:
            return self._misplaced(partition, index, refusal)
        except (InvalidRecords, LogError) as failure:
            return self._not_appended(partition, index, failure)
        return self._wait(partition, index, result, len(records))

    def in_steps(self) -> Steps:
        """Append what is not appended yet, and let others in between."""
        self._context.slices = self._broker.produce_slices
        self._context.own_memory = self._own_memory
        return self._steps()

    def _steps(self) -> Steps:
        for number, topic in enumerate(self._topics):
            begun = number < len(self.answers)
            answers = self.answers[number].partition_responses if begun else self.begin(topic)
            for data in topic.partition_data[len(answers) :]:
                answers.append((yield from self._partition_in_steps(topic, data)))
                data.records = None
                yield None
        self.appended()

    def _own_memory(self) -> None:
        """The frame is good only until the handler returns: what outlives it keeps the memory, or has its own copy."""
        if self._context.connection.leave_memory():
            return
        for topic in self._topics:
            for data in topic.partition_data:
                if data.records is not None:
                    data.records = memoryview(bytearray(cast("Buffer", data.records)))

    def _partition_in_steps(
        self, topic: TopicProduceData, data: PartitionProduceData
    ) -> Generator[Job | None, None, PartitionProduceResponse]:
        try:
            return self.partition(topic, data)
        except LargeBatch as batch:
            large = LargeBatch(memoryview(bytearray(batch.batch)), batch.header)
        partition = _find(self._broker, topic, data.index, self._version)
        assert partition is not None
        placement = partition.log.placement
        try:
            validated = yield from partition.writer.validate_large(large, self._now_ms)
            if _find(self._broker, topic, data.index, self._version) is not partition:  # it was deleted meanwhile
                return self._refused(data.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if partition.log.placement is not placement:  # its topic grows: keys were not looked at as they must be
                return self._refused(data.index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if self._has_transactional_id and self._comes_too_late(partition, large.batch):
                return self._refused(data.index, ErrorCode.INVALID_TXN_STATE, partition.log.log_start_offset)
            result = partition.writer.append_validated(validated, self._version, self._now_ms, self._acks)
        except MisplacedKeys as refusal:
            return self._misplaced(partition, data.index, refusal)
        except (InvalidRecords, LogError) as refusal:
            return self._not_appended(partition, data.index, refusal)
        return self._wait(partition, data.index, result, len(large.batch))

    def _misplaced(self, partition: Partition, index: int, refusal: MisplacedKeys) -> PartitionProduceResponse:
        """A batch that was appended before its topic has grown, and comes again, is acknowledged all the same."""
        known = partition.writer.earlier(refusal.header) if partition.is_leader else None
        if known is None:
            return self._not_appended(partition, index, refusal)
        return self._wait(partition, index, known, refusal.header.size)

    def _wait(
        self, partition: Partition, index: int, result: tuple[Appended, int], size_bytes: int
    ) -> PartitionProduceResponse:
        appended, log_append_time_ms = result
        answer: PartitionProduceResponse = _partition_response(
            index, 0, appended.base_offset, log_append_time_ms, partition.log.log_start_offset
        )
        # When replicas have taken too long, if there are others than this one.
        due = self._broker.loop.now() + self._timeout_ms / 1000 if partition.machine.followers else NEVER
        self._left += 1
        partition.wait(appended.last_offset + 1, self._acks, self, (answer, size_bytes), due)
        return answer

    def _comes_too_late(self, partition: Partition, records: Buffer | None) -> bool:
        """Whether a transaction was ended while its write was under way: what comes now would stay undecided."""
        from ottla.broker.coordinators.transactional_produce import asks_first, is_over

        return asks_first(self._broker, self._version) and is_over(partition, records)

    def _code_for_internal(self, records: Buffer | None) -> ErrorCode:
        """Only coordinators write to their topics. What is no batch at all is told first, as Kafka does."""
        try:
            single_batch(records, self._version)
        except InvalidRecords as refusal:
            return refusal.code
        return ErrorCode.INVALID_TOPIC_EXCEPTION

    def _not_appended(
        self, partition: Partition, index: int, refusal: InvalidRecords | LogError
    ) -> PartitionProduceResponse:
        if isinstance(refusal, LogError):
            is_led = refusal.code != ErrorCode.NOT_LEADER_OR_FOLLOWER
            log_start_offset = partition.log.log_start_offset if is_led else -1
            return self._refused(index, ErrorCode(refusal.code), log_start_offset)
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
        self._failed = True
        return PartitionProduceResponse(index=index, error_code=code, base_offset=-1, log_start_offset=log_start_offset)
