"""The coordinator of transactions on this broker."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple, cast

from ottla.broker.coordinators.coordinator import Coordinator, coordinator_topic
from ottla.broker.coordinators.markers import Sending
from ottla.broker.coordinators.shard import Shard
from ottla.broker.events import Events
from ottla.broker.loop.slices import Steps, Waiting
from ottla.broker.network.peer import PeerFailure
from ottla.controller.layout import NOBODY
from ottla.controller.producer_id_block import claim_producer_ids
from ottla.controller.store import StoreError
from ottla.controller.topic_names import TRANSACTIONS_TOPIC
from ottla.coordinator.operation import Markers, Operation, Reply
from ottla.coordinator.transactions.machine import PartitionCodes, TransactionMachine, TransactionSettings
from ottla.coordinator.transactions.producer_ids import ProducerIds
from ottla.coordinator.transactions.transaction import VERSION_2, TopicPartition, Transaction
from ottla.wire.apis import ADD_PARTITIONS_TO_TXN
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.create_topics import CreatableTopic

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.network.peer import Peer
    from ottla.replica.partition import Partition
    from ottla.wire.schema import Response

events = Events("ottla.broker")

LANE = "transactions"  # who asks may wait for the transaction before to be over


class Asking(NamedTuple):
    """A producer that wants to write to partitions in its transaction."""

    transactional_id: str
    producer: tuple[int, int]
    partitions: Collection[TopicPartition]
    adds: bool
    until: float  # when it is told that the transaction before is still not over
    done: Callable[[PartitionCodes], None]


class AskedElsewhere(NamedTuple):
    """A producer that writes here in a transaction that another broker coordinates."""

    transactional_id: str
    producer: tuple[int, int]
    partitions: Collection[TopicPartition]
    adds: bool
    done: Callable[[PartitionCodes], None]

    def send(self, peer: Peer) -> None:
        topics: dict[str, list[int]] = {}
        for name, index in self.partitions:
            topics.setdefault(name, []).append(index)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            verify_only=not self.adds,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        peer.send(request, ADD_PARTITIONS_TO_TXN.highest, self._answered)

    def _answered(self, answer: Response | PeerFailure) -> None:
        """Whoever asks again may find another coordinator."""
        codes = dict.fromkeys(self.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not isinstance(answer, PeerFailure):
            response = cast("AddPartitionsToTxnResponse", answer)
            whole = ErrorCode(response.error_code)
            found = {
                (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
                for result in response.results_by_transaction
                for topic in result.topic_results
                for partition in topic.results_by_partition
            }
            codes = {name: whole or found.get(name, ErrorCode.UNKNOWN_SERVER_ERROR) for name in self.partitions}
        self.done(codes)


class Transactions(Coordinator[TransactionMachine]):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, TRANSACTIONS_TOPIC, self._make_machine, self._topic, self._send_to_partitions)
        self.producer_ids = ProducerIds(self._fetch_producer_ids)
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
        transaction before is not over yet, a moment is spent waiting for that. Where another broker coordinates the
        transaction, that one is asked, and waits.
        """
        coordinator_id = self.coordinator_id(transactional_id)
        if coordinator_id not in (NOBODY, self.broker.node_id):
            asked = AskedElsewhere(transactional_id, producer, partitions, adds, done)
            asked.send(self.broker.peers.to(coordinator_id, LANE))
        else:
            self.admit_here(transactional_id, producer, partitions, adds=adds, done=done)

    def admit_here(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
        done: Callable[[PartitionCodes], None],
    ) -> None:
        """The same for a broker that takes this one for the coordinator. If it is not, nobody else is asked."""
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
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        if not self.partition_count:
            return ErrorCode.NOT_COORDINATOR
        shard = self.find_shard(transactional_id)
        if isinstance(shard, ErrorCode):
            return shard
        return shard.machine.transactions.get(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)

    # Markers

    def _send_to_partitions(self, shard: Shard[TransactionMachine], markers: Markers) -> None:
        def done() -> None:
            self._sendings[shard].discard(sending)
            self._complete(shard, markers)

        sending = Sending(self.broker, markers, done)
        self._sendings.setdefault(shard, set()).add(sending)
        sending.start()

    def unloaded(self, shard: Shard[TransactionMachine]) -> None:
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

    def ensure_producer_ids(self) -> Steps:
        """Wait for the first ids; later ones are fetched ahead."""
        if not self.producer_ids.are_left:
            yield Waiting(lambda finished: self.producer_ids.when_fetched(lambda: finished(None)))

    def _fetch_producer_ids(self, done: Callable[[range | None], None]) -> None:
        def claimed(block: range | StoreError) -> None:
            if isinstance(block, StoreError):
                events.warning("no producer ids can be had", reason=block)
            done(None if isinstance(block, StoreError) else block)

        claim_producer_ids(self.broker.membership.store, self.broker.node_id, claimed)

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
            min(config.transaction_state_log_replication_factor, len(self.broker.cluster.usable)),
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
