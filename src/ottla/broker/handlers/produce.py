"""Produce (0), versions 3 to 13.

A bad partition fails alone. Each partition carries exactly one batch; of a partition that is named twice only the
last counts. Acks 0 gets no answer, and a closed connection where something was wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.broker.leaders import FIRST_PRODUCE_WITH_LEADER, hint_producer
from ottla.broker.produce_in_steps import in_steps
from ottla.broker.quotas.quotas import PRODUCER_BYTE_RATE
from ottla.controller.topic_names import INTERNAL
from ottla.log.errors import LogError
from ottla.records.validate import InvalidRecords, LargeBatch, MisplacedKeys, single_batch
from ottla.replica.acknowledgements import NEVER
from ottla.wire.errors import ErrorCode
from ottla.wire.fast_path import Constructor
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
    from ottla.broker.loop.slices import Steps
    from ottla.replica.partition import Partition
    from ottla.replica.writer import Placed
    from ottla.wire.parts import Buffer
    from ottla.wire.schema import Response

FIRST_VERSION_WITH_TOPIC_IDS = 13
LEAST_ACKS, MOST_ACKS = -1, 1
AT_ONCE_BYTES = 1 << 16  # a larger request of several partitions lets others in between
AT_ONCE_PARTITIONS = 50  # and so does one of more: the first record of each makes a folder

_partition_response = Constructor(PartitionProduceResponse)
_topic_response = Constructor(TopicProduceResponse)
_response = Constructor(ProduceResponse)


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
        return in_steps(produced)
    try:
        for topic in topics:
            answers = produced.begin(topic)
            for data in topic.partition_data:
                answers.append(produced.partition(topic, data))
    except LargeBatch:
        return in_steps(produced)
    produced.appended()
    return None


def _when_admitted(broker: Broker, request: ProduceRequest, context: Context) -> Response | Steps | None:
    """Produce in a transaction, whose coordinator may have to be asked before."""
    from ottla.broker.coordinators.transactional_produce import when_admitted

    version = context.version
    return when_admitted(
        broker,
        request,
        context,
        lambda topic, data: find(broker, topic, data.index, version),
        lambda refusals: handle(broker, request, context, refusals),
    )


def find(broker: Broker, topic: TopicProduceData, index: int, version: int) -> Partition | None:
    topics = broker.topics
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        by_name = topics.by_name
        known = by_name.get(topic.name)
    else:
        by_id = topics.by_id
        known = by_id.get(topic.topic_id)
    if known is None:
        return None
    replicas = known.replicas
    return replicas.get(index)


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

    def __init__(
        self,
        broker: Broker,
        request: ProduceRequest,
        context: Context,
        refusals: Refusals | None,
        topics: list[TopicProduceData],
    ) -> None:
        self.broker = broker
        self.context = context
        self.topics = topics
        self.answers: list[TopicProduceResponse] = []
        rounds = broker.rounds
        self.now_ms = rounds.now_ms or rounds.look_at_clock()
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.version = context.header[1]
        self.has_transactional_id = request.transactional_id is not None
        self._refusals = refusals
        self._failed = False
        self._left = 1  # appends that are not acknowledged, and the request itself
        self._throttle_ms = 0

    def begin(self, topic: TopicProduceData) -> list[PartitionProduceResponse]:
        """Where the answers for the partitions of a topic go."""
        answers: list[PartitionProduceResponse] = []
        self.answers.append(_topic_response.make((answers, topic.name, topic.topic_id)))
        return answers

    # Acknowledging

    def appended(self) -> None:
        """All partitions have been dealt with; answer if none of them has to be waited for."""
        self.topics = []  # who waits, maybe for the disk, needs nothing of the frame any more
        broker, context = self.broker, self.context
        if broker.quotas.are_set:
            self._throttle_ms = broker.throttle(PRODUCER_BYTE_RATE, context, context.size_bytes)
        self._left -= 1
        if not self._left:
            self._answer()

    def committed(self, append: tuple[PartitionProduceResponse, int], failure: LogError | None) -> None:
        """One of the appends is acknowledged, or failed."""
        answer, size_bytes = append
        if failure is None:
            self.broker.metrics.produced_bytes += size_bytes
        else:
            self._failed = True
            answer.error_code = ErrorCode(failure.code)
            answer.base_offset = answer.log_append_time_ms = -1
        self._left -= 1
        if not self._left:
            try:
                self._answer()
            except Exception:  # it must not reach the partition, which has others to tell
                self.broker.report_bug(self.context.header)
                self.context.connection.close("the broker failed")

    def _answer(self) -> None:
        context = self.context
        if self.acks:
            response = _response.make((self.answers, self._throttle_ms))
            if self._failed and self.version >= FIRST_PRODUCE_WITH_LEADER:
                hint_producer(self.broker, context.connection, response)
            context.reply(response)
        elif self._failed:
            context.close("a produce request without acknowledgement failed")
        else:
            context.no_reply()

    # Appending

    def partition(self, topic: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse:
        index = data.index
        if self.acks < LEAST_ACKS or self.acks > MOST_ACKS:
            return self.refused(index, ErrorCode.INVALID_REQUIRED_ACKS)
        partition = self.target(topic, index)
        if partition is None:
            named = topic.name if self.version < FIRST_VERSION_WITH_TOPIC_IDS else topic.topic_id
            return self.refused(index, self.broker.topics.missing_code(named, index))
        records: Any = data.records  # read from a frame, it is no file
        name = partition.topic
        if name in INTERNAL:
            return self.refused(index, self._code_for_internal(records))
        acquaintance = self.context.connection.acquaintance
        if name not in acquaintance.topics:
            acquaintance.add(name)
        placement = partition.log.placement
        if placement is not None and placement.is_paused:
            self.broker.growing.sent_away(name, self.context.connection)
            return self.refused(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self._refusals:
            refusal = self._refusals.get((name, partition.index))
            if refusal is not None:
                answer = self.refused(index, refusal.code)
                answer.error_message = refusal.message
                return answer
        if self.has_transactional_id and self.comes_too_late(partition, records):
            return self.refused(index, ErrorCode.INVALID_TXN_STATE, partition.log.log_start_offset)
        try:
            writer = partition.writer
            placed = writer.produce(records, self.version, self.now_ms, self.acks, self.has_transactional_id)
        except (InvalidRecords, LogError) as failure:
            return self.not_appended(partition, index, failure)
        return self.wait(partition, index, placed, len(records))

    def wait(self, partition: Partition, index: int, placed: Placed, size_bytes: int) -> PartitionProduceResponse:
        """Wait for what was appended to be acknowledged; the answer, if it will be."""
        base_offset, end_offset, log_append_time_ms = placed
        answer: PartitionProduceResponse = _partition_response.make(
            (index, 0, base_offset, log_append_time_ms, partition.log.log_start_offset)
        )
        due = NEVER
        if partition.machine.followers:  # else nothing can take too long
            due = self.broker.loop.now() + self.timeout_ms / 1000
        self._left += 1
        waiting = partition.acknowledgements
        waiting.wait(end_offset, self.acks, self, (answer, size_bytes), due)
        return answer

    def target(self, topic: TopicProduceData, index: int) -> Partition | None:
        """The partition that is meant, if it is here."""
        return find(self.broker, topic, index, self.version)

    def comes_too_late(self, partition: Partition, records: Buffer | None) -> bool:
        """Whether a transaction was ended while its write was under way: what comes now would stay undecided."""
        from ottla.broker.coordinators.transactional_produce import asks_first, is_over

        return asks_first(self.broker, self.version) and is_over(partition, records)

    def _code_for_internal(self, records: Buffer | None) -> ErrorCode:
        """Only coordinators write to their topics. What is no batch at all is told first, as Kafka does."""
        try:
            single_batch(records, self.version)
        except InvalidRecords as refusal:
            return refusal.code
        return ErrorCode.INVALID_TOPIC_EXCEPTION

    def not_appended(
        self, partition: Partition, index: int, refusal: InvalidRecords | LogError
    ) -> PartitionProduceResponse:
        if isinstance(refusal, MisplacedKeys):
            # A batch that was appended before its topic has grown, and comes again, is acknowledged all the same.
            known = partition.writer.earlier(refusal.header) if partition.is_leader else None
            if known is not None:
                return self.wait(partition, index, known, refusal.header.size)
        if isinstance(refusal, LogError):
            is_led = refusal.code != ErrorCode.NOT_LEADER_OR_FOLLOWER
            log_start_offset = partition.log.log_start_offset if is_led else -1
            return self.refused(index, ErrorCode(refusal.code), log_start_offset)
        log_start_offset = partition.log.log_start_offset if refusal.is_log_reached else -1
        answer = self.refused(index, refusal.code, log_start_offset)
        if refusal.is_told:
            answer.error_message = refusal.message
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=message)
            for number, message in refusal.record_errors
        ]
        return answer

    def refused(self, index: int, code: ErrorCode, log_start_offset: int = -1) -> PartitionProduceResponse:
        self._failed = True
        return PartitionProduceResponse(index=index, error_code=code, base_offset=-1, log_start_offset=log_start_offset)
