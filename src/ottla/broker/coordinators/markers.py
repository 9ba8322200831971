"""Markers: the end of a transaction, written to each of its partitions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from ottla.broker.events import Events
from ottla.broker.loop.loop import Timer
from ottla.broker.loop.slices import Steps, finished, parts_of
from ottla.broker.network.peer import PeerFailure
from ottla.controller.layout import NOBODY
from ottla.controller.topic_names import OFFSETS_TOPIC
from ottla.coordinator.operation import Markers
from ottla.log.errors import LogError
from ottla.log.producers import Origin
from ottla.records.batch import read_header
from ottla.records.build import ControlMarker, build_marker
from ottla.wire.apis import WRITE_TXN_MARKERS
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.replica.partition import Partition
    from ottla.wire.schema import Response

events = Events("ottla.broker")

RETRY_SECONDS = 0.1
SENT_AT_ONCE = 20
MOST_IN_A_REQUEST = 500
LANE = "markers"  # they are answered when they are committed, and nothing else shall wait for that

Name = tuple[str, int]  # of a partition


def append_marker(
    broker: Broker, partition: Partition, marker: ControlMarker, producer: tuple[int, int], transaction_version: int
) -> int:
    """End a producer's transaction in a partition that this broker leads; the offset behind the marker."""
    shard = broker.groups.shard_of(partition.index) if partition.topic == OFFSETS_TOPIC else None
    if shard is not None:
        shard.write_gathered()  # it was decided before the marker
    now_ms = broker.clock_ms()
    batch = build_marker(marker, producer_id=producer[0], producer_epoch=producer[1], timestamp=now_ms)
    appended = partition.writer.append(
        batch, read_header(batch), now_ms, origin=Origin.COORDINATOR, transaction_version=transaction_version
    )
    if shard is not None and shard.partition is partition:
        shard.replay_marker(producer[0], marker.is_commit)
    return appended.last_offset + 1


class Sending:
    """The markers of one transaction, on their way until each is where it belongs: a full disk may take its time.

    Those of partitions that other brokers lead are sent there.
    """

    def __init__(self, broker: Broker, markers: Markers, done: Callable[[], None]) -> None:
        self._broker = broker
        self._markers = markers
        self._done: Callable[[], None] | None = done  # which knows this one, too: it is let go of at the end
        self._left = set(markers.partitions)
        self._is_stopped = False
        self._retries: list[Timer] = []
        self._told: set[Name] = set()  # partitions whose marker could not be written, once each

    def start(self) -> None:
        if not self._left:
            self._end()
        self._send(list(self._markers.partitions))

    def stop(self) -> None:
        """The coordinator has gone; the one after it begins anew."""
        self._is_stopped = True
        self._done = None
        for timer in self._retries:
            timer.cancel()

    def _send(self, names: list[Name]) -> None:
        """Few at once, many in slices: the next transaction does not begin before all are written."""
        if len(names) <= SENT_AT_ONCE:
            finished(self._send_in_steps(names))
        else:
            self._broker.request_slices.start(self._send_in_steps(names), _sent)

    def _send_in_steps(self, names: list[Name]) -> Steps:
        failed: list[Name] = []
        elsewhere: dict[int, list[Name]] = {}
        for name in names:
            if self._is_stopped:
                return
            partition = self._broker.topics.partition(*name)
            state = self._broker.cluster.state(*name)
            if partition is not None and partition.is_leader:
                if not self._write(partition):
                    failed.append(name)
            elif state is None:  # it was deleted, and nobody reads it any more
                self._settled(name)
            elif state.leader_id in (NOBODY, self._broker.node_id):  # soon somebody will lead it, or this broker does
                failed.append(name)
            else:
                elsewhere.setdefault(state.leader_id, []).append(name)
            yield None
        for leader_id, led in elsewhere.items():
            for part in parts_of(led, MOST_IN_A_REQUEST):
                if self._is_stopped:
                    return
                self._send_to(leader_id, list(part))
                yield None
        if failed:
            self._retry(failed)

    # Here

    def _write(self, partition: Partition) -> bool:
        """Whether this partition needs no other try."""
        name = partition.topic, partition.index
        marker = ControlMarker(self._markers.is_commit, self._markers.coordinator_epoch)
        producer = self._markers.producer_id, self._markers.producer_epoch
        try:
            end_offset = append_marker(self._broker, partition, marker, producer, self._markers.transaction_version)
        except LogError as refusal:
            return self._refused(name, refusal.code, str(refusal))
        self._await_commit(partition, partition.leader_epoch, end_offset)
        return True

    def _await_commit(self, partition: Partition, leader_epoch: int, end_offset: int) -> None:
        name = partition.topic, partition.index

        def committed(failure: LogError | None) -> None:
            if failure is None:
                self._settled(name)
            elif partition.is_leader and partition.leader_epoch == leader_epoch and partition.log.failure is None:
                # Too few replicas are there. It stays in the log: a second one would only come behind it.
                self._call_later(lambda: self._await_commit(partition, leader_epoch, end_offset))
            else:
                self._retry([name])

        partition.when_committed(end_offset, committed)

    # Elsewhere

    def _send_to(self, leader_id: int, names: list[Name]) -> None:
        topics: dict[str, list[int]] = {}
        for topic, index in names:
            topics.setdefault(topic, []).append(index)
        marker = WritableTxnMarker(
            producer_id=self._markers.producer_id,
            producer_epoch=self._markers.producer_epoch,
            transaction_result=self._markers.is_commit,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=found) for name, found in topics.items()],
            coordinator_epoch=self._markers.coordinator_epoch,
            transaction_version=self._markers.transaction_version,
        )
        request = WriteTxnMarkersRequest(markers=[marker])
        peer = self._broker.peers.to(leader_id, LANE)
        peer.send(request, WRITE_TXN_MARKERS.highest, functools.partial(self._answered, names))

    def _answered(self, names: list[Name], answer: Response | PeerFailure) -> None:
        if self._is_stopped:
            return
        codes = {} if isinstance(answer, PeerFailure) else _codes(cast("WriteTxnMarkersResponse", answer))
        reason = str(answer) if isinstance(answer, PeerFailure) else "the leader has refused it"
        failed = []
        for name in names:
            code = codes.get(name, ErrorCode.NETWORK_EXCEPTION)
            if code == ErrorCode.NONE:
                self._settled(name)
            elif not self._refused(name, code, reason):
                failed.append(name)
        if failed:
            self._retry(failed)

    # The end

    def _refused(self, name: Name, code: int, reason: str) -> bool:
        """Whether this partition needs no other try."""
        partition = f"{name[0]}-{name[1]}"
        if code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            events.warning("another coordinator ends transactions here", partition=partition, reason=reason)
            self.stop()
            return True
        if code == ErrorCode.INVALID_PRODUCER_EPOCH:
            events.warning("a partition is beyond a transaction", partition=partition, reason=reason)
            self._settled(name)
            return True
        if name not in self._told:
            self._told.add(name)
            events.warning("a marker cannot be written yet", partition=partition, code=code, reason=reason)
        return False

    def _retry(self, names: list[Name]) -> None:
        self._call_later(lambda: self._send(names))

    def _call_later(self, call: Callable[[], None]) -> None:
        if not self._is_stopped:
            due = self._broker.loop.call_later(RETRY_SECONDS, call)
            self._retries = [*(timer for timer in self._retries if timer.callback is not None), due]

    def _settled(self, name: Name) -> None:
        self._left.discard(name)
        if not self._left and not self._is_stopped:
            self._end()

    def _end(self) -> None:
        done, self._done, self._is_stopped = self._done, None, True
        if done is not None:
            done()


def _codes(answer: WriteTxnMarkersResponse) -> dict[Name, int]:
    return {
        (topic.name, partition.partition_index): partition.error_code
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    }


def _sent(_nothing: object, failure: Exception | None) -> None:
    if failure is not None:
        raise failure
