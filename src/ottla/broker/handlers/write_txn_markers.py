"""WriteTxnMarkers (27), versions 1 and 2: ends transactions in partitions that this broker leads.

Coordinators send it, and administrators who end a transaction that no coordinator knows of any more.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from typing import TYPE_CHECKING

from ottla.broker.coordinators.markers import append_marker
from ottla.broker.loop.slices import Steps, mapped
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


def handle(broker: Broker, request: WriteTxnMarkersRequest, context: Context) -> Steps:
    written = _Written(broker, context)
    results = []
    for marker in request.markers:
        result = yield from written.marker(marker)
        results.append(result)
    written.answer(WriteTxnMarkersResponse(markers=[result for result in results if result.topics]))
    return None


class _Written:
    """The work of one request."""

    def __init__(self, broker: Broker, context: Context) -> None:
        self._broker = broker
        self._context = context
        self._left = 1  # markers that are not committed, and the request itself
        self._response: WriteTxnMarkersResponse | None = None

    def answer(self, response: WriteTxnMarkersResponse) -> None:
        """Answer when all markers are committed."""
        self._response = response
        self._done()

    def _committed(self, result: WritableTxnMarkerPartitionResult, failure: LogError | None) -> None:
        if failure is not None:
            result.error_code = failure.code
        self._done()

    def _done(self) -> None:
        self._left -= 1
        if not self._left and self._response is not None:
            self._context.reply(self._response)

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
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # here, wherever else it may be
            return result
        control = ControlMarker(marker.transaction_result, marker.coordinator_epoch)
        producer = marker.producer_id, marker.producer_epoch
        try:
            end_offset = append_marker(self._broker, partition, control, producer, marker.transaction_version)
        except LogError as refusal:
            result.error_code = refusal.code
            return result
        self._left += 1
        partition.when_committed(end_offset, functools.partial(self._committed, result))
        return result
