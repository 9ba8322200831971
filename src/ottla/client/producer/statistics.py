"""What a producer has done so far, in numbers."""

from __future__ import annotations

from typing import NamedTuple

from ottla.client.producer.batch import Batch
from ottla.client.producer.delivery import Outcome


class ProducerStatistics(NamedTuple):
    """Since the producer was opened; what is `in_flight` or in the buffer is as of now."""

    records_written: int
    records_failed: int
    batches_written: int
    bytes_written: int
    """About: before compression."""
    requests: int
    retries: int
    """Batches that were to be sent again."""
    request_seconds: float
    """Of all requests together, from asking to the answer."""
    requests_in_flight: int
    buffered_bytes: int
    """Not acknowledged, of `buffer_limit_bytes`."""
    buffer_limit_bytes: int


class Counts:
    """Kept by the sender, by the batch."""

    def __init__(self) -> None:
        self.records_written = 0
        self.records_failed = 0
        self.batches_written = 0
        self.bytes_written = 0
        self.requests = 0
        self.retries = 0
        self.request_seconds = 0.0

    def request(self, seconds: float) -> None:
        self.requests += 1
        self.request_seconds += seconds

    def decided(self, batch: Batch, outcome: Outcome) -> None:
        if outcome.error is not None:
            self.records_failed += batch.count
            return
        self.records_written += batch.count
        self.batches_written += 1
        self.bytes_written += batch.size_bytes
