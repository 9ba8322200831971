"""The coordinator of transactions on this broker."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.coordinator import Coordinator, Shard, coordinator_topic
from ottla.broker.markers import Sending
from ottla.controller.producer_id_block import claim_producer_ids
from ottla.controller.store import StoreError
from ottla.controller.topic_names import TRANSACTIONS_TOPIC
from ottla.coordinator.operation import Markers, Operation, Reply
from ottla.coordinator.placement import partition_for
from ottla.coordinator.producer_ids import NoProducerId, ProducerIds
from ottla.coordinator.transaction import VERSION_2, TopicPartition, Transaction
from ottla.coordinator.transaction_machine import PartitionCodes, TransactionMachine
from ottla.coordinator.transaction_settings import TransactionSettings
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.replica.partition import Partition


class Asking(NamedTuple):
    """A producer that wants to write to partitions in its transaction."""

    transactional_id: str
    producer: tuple[int, int]
    partitions: Collection[TopicPartition]
    adds: bool
    until: float  # when it is told that the transaction before is still not over
    done: Callable[[PartitionCodes], None]


class Transactions(Coordinator[TransactionMachine]):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, TRANSACTIONS_TOPIC, self._make_machine, self._topic, self._send_to_partitions)
        self.producer_ids = ProducerIds(self._claim_producer_ids)
        self._sendings: dict[Shard[TransactionMachine], set[Sending]] = {}
        self._waiting: dict[str, list[Asking]] = {}  # for the transaction before theirs to be over

    # Admission

    def admit(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
        done: Callable[[PartitionCodes], None],
    ) -> None:
        """Ask whether a producer may write to partitions in its transaction; `done` gets a code for each.

        `adds`: they are added where they do not take part yet, as version 2 of transactions has it, and if the
        transaction before is not over yet, a moment is spent waiting for that.
        """
        config = self.broker.settings.config
        wait_ms = min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms) if adds else 0
        until = self.broker.loop.now() + wait_ms / 1000
        self._ask(Asking(transactional_id, producer, partitions, adds, until, done))

    def _ask(self, asking: Asking) -> None:
        def answered(codes: PartitionCodes) -> None:
            may_wait = self.broker.loop.now() < asking.until
            if may_wait and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values():
                self._wait(asking)
            else:
                asking.done(codes)

        reply = Reply(answered, lambda code: dict.fromkeys(asking.partitions, code))

        def event(machine: TransactionMachine, operation: Operation) -> None:
            transactional_id, producer, partitions, adds, _, _ = asking
            if adds:
                machine.add_partitions(operation, reply, transactional_id, producer, partitions, VERSION_2)
            else:
                machine.verify_partitions(operation, reply, transactional_id, producer, partitions)

        self.submit(asking.transactional_id, reply, event)

    def _wait(self, asking: Asking) -> None:
        """Ask again when the transaction before is over, and after a while in any case."""
        self._waiting.setdefault(asking.transactional_id, []).append(asking)
        seconds = self.broker.settings.config.add_partitions_to_txn_retry_backoff_ms / 1000
        self.broker.loop.call_later(seconds, lambda: self._waited(asking))

    def _waited(self, asking: Asking) -> None:
        waiting = self._waiting.get(asking.transactional_id, [])
        if any(each is asking for each in waiting):
            left = [each for each in waiting if each is not asking]
            if left:
                self._waiting[asking.transactional_id] = left
            else:
                del self._waiting[asking.transactional_id]
            self._ask(asking)

    def find(self, transactional_id: str) -> Transaction | ErrorCode:
        """The state of a transactional id, without making anything for it."""
        topic = self.broker.topics.by_name.get(self.topic)
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        if topic is None:
            return ErrorCode.NOT_COORDINATOR
        shard = self._shard(topic.partitions[partition_for(transactional_id, len(topic.partitions))])
        if shard is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not shard.is_loaded:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return shard.machine.transactions.get(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)

    # Markers

    def _send_to_partitions(self, shard: Shard[TransactionMachine], markers: Markers) -> None:
        def done() -> None:
            self._sendings[shard].discard(sending)
            self._complete(shard, markers)

        sending = Sending(self.broker, markers, done)
        self._sendings.setdefault(shard, set()).add(sending)
        sending.start()

    def resigned(self, shard: Shard[TransactionMachine]) -> None:
        """Its successor sends anew what is left to send. What comes later than that could end the next transaction."""
        for sending in self._sendings.pop(shard, ()):
            sending.stop()

    def _complete(self, shard: Shard[TransactionMachine], markers: Markers) -> None:
        producer = markers.producer_id, markers.producer_epoch
        shard.run(lambda operation: shard.machine.markers_written(operation, markers.transactional_id, producer))
        for asking in self._waiting.pop(markers.transactional_id, ()):
            self._ask(asking)

    def stop(self) -> None:
        self._waiting.clear()
        super().stop()

    # What machines are given

    def _make_machine(self, partition: Partition) -> TransactionMachine:
        return TransactionMachine(partition.leader_epoch, self.producer_ids.new, self._machine_settings)

    def _claim_producer_ids(self) -> range:
        try:
            return claim_producer_ids(self.broker.catalog.store, self.broker.node_id)
        except StoreError as error:
            raise NoProducerId(str(error)) from error

    def _machine_settings(self) -> TransactionSettings:
        config = self.broker.settings.config
        return TransactionSettings(
            max_timeout_ms=config.transaction_max_timeout_ms,
            abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
            removal_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        )

    def _topic(self) -> CreatableTopic:
        config = self.broker.settings.config
        return coordinator_topic(
            TRANSACTIONS_TOPIC,
            config.transaction_state_log_num_partitions,
            min(config.transaction_state_log_replication_factor, len(self.broker.catalog.cluster.brokers)),
            cleanup_policy="compact",
            compression_type="uncompressed",
            min_insync_replicas=str(config.transaction_state_log_min_isr),
            segment_bytes=str(config.transaction_state_log_segment_bytes),
            unclean_leader_election_enable="false",
        )


def known_code(code: ErrorCode, version: int, first_version_with_fencing: int) -> ErrorCode:
    """Clients of before know a fenced producer by another number."""
    is_known = code is not ErrorCode.PRODUCER_FENCED or version >= first_version_with_fencing
    return code if is_known else ErrorCode.INVALID_PRODUCER_EPOCH
