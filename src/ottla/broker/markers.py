"""Markers: the end of a transaction, written to each of its partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.events import Events
from ottla.broker.slices import Steps, finished
from ottla.controller.topic_names import OFFSETS_TOPIC
from ottla.coordinator.operation import Markers
from ottla.log.errors import CoordinatorFenced, InvalidProducerEpoch, LogError, StorageFailed
from ottla.log.producers import Origin
from ottla.records.batch import read_header
from ottla.records.build import ControlMarker, build_marker

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.replica.partition import Partition

events = Events("ottla.broker")

RETRY_SECONDS = 0.1
SENT_AT_ONCE = 20


def append_marker(
    broker: Broker, partition: Partition, marker: ControlMarker, producer: tuple[int, int], transaction_version: int
) -> int:
    """End a producer's transaction in a partition that this broker leads; the offset behind the marker."""
    shard = broker.groups.shard_of(partition.index) if partition.topic == OFFSETS_TOPIC else None
    if shard is not None:
        shard.write_gathered()  # it was decided before the marker
    now_ms = broker.clock_ms()
    batch = build_marker(marker, producer_id=producer[0], producer_epoch=producer[1], timestamp=now_ms)
    appended = partition.append(
        batch, read_header(batch), now_ms, origin=Origin.COORDINATOR, transaction_version=transaction_version
    )
    if shard is not None and shard.partition is partition:
        shard.replay_marker(producer[0], marker.is_commit)
    return appended.last_offset + 1


class Sending:
    """The markers of one transaction, on their way until each is where it belongs: a full disk may take its time."""

    def __init__(self, broker: Broker, markers: Markers, done: Callable[[], None]) -> None:
        self._broker = broker
        self._markers = markers
        self._done = done
        self._left = set(markers.partitions)
        self._is_stopped = False

    def start(self) -> None:
        if not self._left:
            self._done()
        self._send(list(self._markers.partitions))

    def stop(self) -> None:
        """The coordinator has gone; the one after it begins anew."""
        self._is_stopped = True

    def _send(self, names: list[tuple[str, int]]) -> None:
        """Few at once, many in slices: the next transaction does not begin before all are written."""
        if len(names) <= SENT_AT_ONCE:
            finished(self._send_in_steps(names))
        else:
            self._broker.request_slices.start(self._send_in_steps(names), _sent)

    def _send_in_steps(self, names: list[tuple[str, int]]) -> Steps:
        failed = []
        for name in names:
            if self._is_stopped:
                return
            if not self._send_one(name):
                failed.append(name)
            yield None
        if failed:
            self._retry(failed)

    def _send_one(self, name: tuple[str, int]) -> bool:
        """Whether this partition needs no other try."""
        partition = self._broker.topics.partition(*name)
        if partition is None:  # it was deleted, and nobody reads it any more
            self._settled(name)
            return True
        marker = ControlMarker(self._markers.is_commit, self._markers.coordinator_epoch)
        producer = self._markers.producer_id, self._markers.producer_epoch
        try:
            end_offset = append_marker(self._broker, partition, marker, producer, self._markers.transaction_version)
        except CoordinatorFenced as refusal:
            events.warning("another coordinator ends transactions here", partition=partition.name, reason=refusal)
            self.stop()
            return True
        except InvalidProducerEpoch as refusal:
            events.warning("a partition is beyond a transaction", partition=partition.name, reason=refusal)
            self._settled(name)
            return True
        except LogError as failure:
            events.warning("a marker cannot be written yet", partition=partition.name, reason=failure)
            return False
        self._broker.durability.when_committed(partition, end_offset, lambda failure: self._committed(name, failure))
        return True

    def _committed(self, name: tuple[str, int], failure: StorageFailed | None) -> None:
        if failure is None:
            self._settled(name)
        else:
            self._retry([name])

    def _retry(self, names: list[tuple[str, int]]) -> None:
        self._broker.loop.call_later(RETRY_SECONDS, lambda: self._send(names))

    def _settled(self, name: tuple[str, int]) -> None:
        self._left.discard(name)
        if not self._left and not self._is_stopped:
            self._done()


def _sent(_nothing: object, failure: Exception | None) -> None:
    if failure is not None:
        raise failure
