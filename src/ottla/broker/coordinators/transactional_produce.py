"""Produce within a transaction: the coordinator is asked before the first write to a partition (KIP-890).

With version 2 of transactions, the write itself adds the partition. Clients of version 1 add it by a request of its
own, so here it is only verified: a write that comes too late would otherwise stay undecided for ever. Requests that a
client sends after such a write wait with it, because sequences are checked in the order of the requests.
"""

from __future__ import annotations

from collections.abc import Callable
from types import GeneratorType
from typing import TYPE_CHECKING, cast

from ottla.broker.in_steps import InSteps, answer_in_steps
from ottla.records.batch import HEADER_SIZE, MAGIC, BatchHeader, read_header
from ottla.replica.writer import FIRST_VERSION_WITH_TRANSACTIONS_2
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps
    from ottla.coordinator.transactions.machine import PartitionCodes
    from ottla.replica.partition import Partition
    from ottla.wire.parts import Buffer
    from ottla.wire.schema import Response

FIRST_VERSION_WITH_ABORTABLE_ERRORS = 11
PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

# What a producer is told that the coordinator will never admit, however often it asks.
STRANGE = frozenset(
    {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
)

TopicPartition = tuple[str, int]
Write = tuple["Partition", BatchHeader]


SEVERAL_PRODUCERS = ApiError(
    ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
)
Refusals = dict[TopicPartition, ApiError]
Produce = Callable[[Refusals], "Response | Steps | None"]
FindPartition = Callable[[TopicProduceData, PartitionProduceData], "Partition | None"]


def asks_first(broker: Broker, version: int) -> bool:
    """Whether the coordinator is asked before the first write of a transaction to a partition."""
    is_verified = broker.settings.config.transaction_partition_verification_enable
    return is_verified or version >= FIRST_VERSION_WITH_TRANSACTIONS_2


def is_over(partition: Partition, records: Buffer | None) -> bool:
    """Whether the transaction of a batch was ended since its write was admitted, so that it comes too late."""
    if records is None or len(records) < HEADER_SIZE or not partition.is_leader:  # nobody was asked for a follower
        return False
    header = read_header(records)
    if header.magic != MAGIC or not header.is_transactional or header.producer_id < 0:
        return False
    producers, producer = partition.log.producers, (header.producer_id, header.producer_epoch)
    return not (producers.is_admitted(*producer) or producers.is_replaced(*producer))  # which is another error


def when_admitted(
    broker: Broker, request: ProduceRequest, context: Context, find: FindPartition, produce: Produce
) -> Response | Steps | None:
    """Produce, but for the partitions that the coordinator refuses: now, or when it has answered."""
    found = _transactional_writes(request, find)
    writes = [write for write in found if write[0].is_leader]
    if not writes:
        return produce({})
    if len({(header.producer_id, header.producer_epoch) for _, header in writes}) > 1:
        return produce(dict.fromkeys(_all_names(request, find), SEVERAL_PRODUCERS))
    epochs = {partition: partition.leader_epoch for partition, _ in found}
    admission = _Admission(broker, request, context, produce, epochs)
    return admission.ask(writes)


def _transactional_writes(request: ProduceRequest, find: FindPartition) -> list[Write]:
    """What belongs to a transaction; whatever is wrong with it is found later."""
    writes: list[Write] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = cast("Buffer | None", data.records)
            if records is None or len(records) < HEADER_SIZE:
                continue
            header = read_header(records)
            if header.magic != MAGIC or not header.is_transactional or header.producer_id < 0:
                continue
            partition = find(topic, data)
            if partition is not None:
                if partition.is_leader:
                    partition.writer.write_gathered()  # it may be of the same producer
                writes.append((partition, header))
    return writes


def _all_names(request: ProduceRequest, find: FindPartition) -> list[TopicPartition]:
    partitions = [find(topic, data) for topic in request.topic_data for data in topic.partition_data]
    return [_name(partition) for partition in partitions if partition is not None]


def _name(partition: Partition) -> TopicPartition:
    return partition.topic, partition.index


class _Admission:
    """One request that has to ask first. `epochs` are those in which its partitions are led, here or elsewhere."""

    def __init__(
        self, broker: Broker, request: ProduceRequest, context: Context, produce: Produce, epochs: dict[Partition, int]
    ) -> None:
        self._broker = broker
        self._request = request
        self._context = context
        self._produce = produce
        self._epochs = epochs
        self._refusals: Refusals = {}
        self._take_back: dict[TopicPartition, Callable[[], None]] = {}  # what was noted of those that are asked about
        self._is_unanswered = False
        self._is_held = False

    def ask(self, writes: list[Write]) -> Response | Steps | None:
        newcomers = self._newcomers(writes)
        if newcomers:
            self._is_unanswered = True
            _, header = writes[0]
            self._broker.transactions.admit(
                self._request.transactional_id or "",
                (header.producer_id, header.producer_epoch),
                newcomers,
                adds=self._is_version_2,
                done=self._answered,
            )
        if not self._is_unanswered:
            return self._produce(self._refusals)
        self._hold()
        return None

    def _newcomers(self, writes: list[Write]) -> list[TopicPartition]:
        """The partitions that do not take part yet in the transaction. Old producers are refused here already."""
        newcomers = []
        for partition, header in writes:
            producers = partition.log.producers
            if producers.is_replaced(header.producer_id, header.producer_epoch):
                self._refusals[_name(partition)] = ApiError(ErrorCode.INVALID_PRODUCER_EPOCH)
            elif not producers.takes_part(header.producer_id, header.producer_epoch) and self._asks:
                name = _name(partition)
                self._take_back[name] = producers.note_asked(
                    header, self._broker.clock_ms(), epoch_rises=self._is_version_2
                )
                newcomers.append(name)
        return newcomers

    @property
    def _is_version_2(self) -> bool:
        return self._context.version >= FIRST_VERSION_WITH_TRANSACTIONS_2

    @property
    def _asks(self) -> bool:
        return asks_first(self._broker, self._context.version)

    def _hold(self) -> None:
        """The frame is good only until the handler returns, and nothing may overtake it."""
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    data.records = memoryview(bytearray(cast("Buffer", data.records)))
        self._context.connection.hold()
        self._is_held = True

    def _answered(self, codes: PartitionCodes) -> None:
        for partition, code in codes.items():
            if code:
                self._refusals[partition] = _refusal(code, self._context.version)
            if code in STRANGE and partition in self._take_back:
                self._take_back[partition]()  # numbers are cheap to invent, and may be those of others
        self._is_unanswered = False
        if self._is_held:
            self._go_on()

    def _refuse_moved(self) -> None:
        """Who began to lead a partition meanwhile has asked nobody about it: its producer comes again."""
        for partition, epoch in self._epochs.items():
            if partition.leader_epoch != epoch:
                self._refusals.setdefault(_name(partition), ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _go_on(self) -> None:
        context = self._context
        self._refuse_moved()
        try:
            answered = self._produce(self._refusals)
            if isinstance(answered, GeneratorType):
                context.in_steps = InSteps(self._broker.produce_slices)  # it has its own memory already
                answer_in_steps(self._broker, context, answered)
            elif answered is not None:
                context.reply(cast("Response", answered))
        except Exception:  # it must not reach the coordinator, whose call this is
            self._broker.report_bug(context.header)
            context.connection.close("the broker failed")
        context.connection.release()


def _refusal(code: ErrorCode, version: int) -> ApiError:
    """What the coordinator said, in words that a producer of this version understands."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ApiError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_WITH_ABORTABLE_ERRORS:
        return ApiError(ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction")
    if code in PASSING or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_VERSION_WITH_TRANSACTIONS_2):
        # An error that producers of any age try again after.
        return ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}",
        )
    return ApiError(code)
