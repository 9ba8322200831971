"""WriteTxnMarkers (27), versions 1 and 2: ends transactions in partitions that this broker leads.

Coordinators send it, and administrators who end a transaction that no coordinator knows of any more.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from typing import TYPE_CHECKING

from ottla.broker.markers import append_marker
from ottla.broker.slices import Steps, mapped
from ottla.log.errors import LogError
from ottla.records.build import ControlMarker
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.replica.partition import Partition


def handle(broker: Broker, request: WriteTxnMarkersRequest, context: Context) -> Steps:
    written = _Written(broker)
    results = []
    for marker in request.markers:
        result = yield from written.marker(marker)
        results.append(result)
    response = WriteTxnMarkersResponse(markers=[result for result in results if result.topics])
    if not written.to_sync:
        return response

    def on_disk(failed: set[Partition]) -> None:
        for partition, result in written.results:
            if partition in failed:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        context.reply(response)

    broker.durability.when_on_disk(written.to_sync, on_disk)
    return None


class _Written:
    """The work of one request."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.to_sync: list[tuple[Partition, int]] = []
        self.results: list[tuple[Partition, WritableTxnMarkerPartitionResult]] = []

    def marker(self, marker: WritableTxnMarker) -> Generator[None, None, WritableTxnMarkerResult]:
        topics = []
        for topic in marker.topics:
            if topic.partition_indexes:
                partitions = yield from mapped(
                    functools.partial(self._partition, marker, topic.name), topic.partition_indexes
                )
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
        return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)

    def _partition(self, marker: WritableTxnMarker, topic: str, index: int) -> WritableTxnMarkerPartitionResult:
        result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=ErrorCode.NONE)
        partition = self._broker.topics.partition(topic, index)
        if partition is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return result
        control = ControlMarker(marker.transaction_result, marker.coordinator_epoch)
        producer = marker.producer_id, marker.producer_epoch
        try:
            end_offset = append_marker(self._broker, partition, control, producer, marker.transaction_version)
        except LogError as refusal:
            result.error_code = refusal.code
            return result
        if self._broker.durability.must_wait(partition.log):
            self.to_sync.append((partition, end_offset))
        self.results.append((partition, result))
        return result
