"""A task: reads a range of offsets and hands it to Spark as Arrow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.client import EARLIEST, FetchedData, Reader, Resource, ResourceKind, ServerError, TopicRecreated
from ottla.pipelines.catalog import topic_id_text
from ottla.pipelines.data_loss import DataLoss, report_loss
from ottla.pipelines.offset_range import OffsetRange
from ottla.pipelines.source_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa


def read_range(options: SourceOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """All that may be seen of the range. DataLoss where some of it is not there any more."""
    from ottla.pipelines.rows import RowBuilder  # Arrow is not needed where a query is only planned

    rows = RowBuilder(options.columns, wanted)
    try:
        for portion in _portions(options, wanted):
            yield from rows.batches(portion)
    except ServerError as error:
        if error.name != "OFFSET_OUT_OF_RANGE":
            raise
        raise DataLoss(f"{wanted} are not all there any more: {error}") from None
    except TopicRecreated as error:
        raise DataLoss(f"{wanted}: {error}") from None


def _portions(options: SourceOptions, wanted: OffsetRange) -> Iterator[FetchedData]:
    is_strict = options.fails_on_data_loss
    reader = Reader(
        options.cluster.bootstrap, wanted.topic, [wanted.partition], start=wanted.start, end=wanted.end,
        isolation=options.isolation, reset=None if is_strict else EARLIEST, partition_bytes=options.partition_bytes,
        fetch_bytes=options.fetch_bytes, options=options.cluster.options,
    )  # fmt: skip
    may_have_gaps: bool | None = None
    with reader:
        last_progress = time.monotonic()
        while not reader.is_done:
            portions = reader.poll_data()
            _check_topic(reader, wanted, fails=is_strict)
            for portion in portions:
                if portion.gap is not None and portion.gap[0] < wanted.end and not may_have_gaps:
                    may_have_gaps = _is_compacted(options, wanted.topic)
                    _check_gap(wanted, portion.gap, may_have_gaps=may_have_gaps, fails=is_strict)
                yield portion
            if portions:
                last_progress = time.monotonic()
            elif time.monotonic() - last_progress > options.poll_timeout_ms / 1000:
                raise TimeoutError(
                    f"{wanted}: nothing came behind offset {reader.offsets[wanted.partition]} within "
                    f"{options.poll_timeout_ms} ms (option kafkaConsumer.pollTimeoutMs)"
                )


def _check_topic(reader: Reader, wanted: OffsetRange, *, fails: bool) -> None:
    if reader.topic_id is not None and topic_id_text(reader.topic_id) != wanted.topic_id:
        report_loss(f"topic {wanted.topic} was deleted and created again", fails=fails)


def _is_compacted(options: SourceOptions, topic: str) -> bool:
    with options.cluster.admin() as admin:
        [configs] = admin.describe_configs([Resource(ResourceKind.TOPIC, topic)], ["cleanup.policy"])
    return any("compact" in (entry.value or "") for entry in configs.entries)


def _check_gap(wanted: OffsetRange, gap: tuple[int, int], *, may_have_gaps: bool, fails: bool) -> None:
    if not may_have_gaps:
        place = f"topic {wanted.topic}, partition {wanted.partition}"
        report_loss(f"{place} has no offsets {gap[0]} to {gap[1] - 1}", fails=fails)
