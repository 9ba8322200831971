"""A task: reads a range of offsets and hands it to Spark as Arrow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.client import (
    EARLIEST,
    LATEST,
    FetchedData,
    LogTruncated,
    Reader,
    Resource,
    ResourceKind,
    ServerError,
    TopicRecreated,
)
from ottla.pipelines.catalog import topic_id_text
from ottla.pipelines.data_loss import report_loss
from ottla.pipelines.offset_range import OffsetRange
from ottla.pipelines.source_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

_OF_LOSS = ("OFFSET_OUT_OF_RANGE", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID")


def read_range(options: SourceOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """All that may be seen of the range. Where some of it is not there any more: DataLoss, or what there is of it."""
    from ottla.pipelines.rows import RowBuilder  # Arrow is not needed where a query is only planned

    rows = RowBuilder(options.columns, wanted)
    try:
        for portion in _portions(options, wanted):
            yield from rows.batches(portion)
    except (ServerError, TopicRecreated, LogTruncated) as error:
        if isinstance(error, ServerError) and error.name not in _OF_LOSS:
            raise
        report_loss(f"{wanted} are not all there any more: {error}", fails=options.fails_on_data_loss)


def _portions(options: SourceOptions, wanted: OffsetRange) -> Iterator[FetchedData]:
    """Where a query goes on without what is lost, an offset that has gone is passed over, but never gone back from:
    what is before it now is not of this range."""
    is_strict = options.fails_on_data_loss
    reader = Reader(
        options.cluster.bootstrap, wanted.topic, [wanted.partition], start=wanted.start, end=wanted.end,
        isolation=options.isolation, reset=None if is_strict else EARLIEST, partition_bytes=options.partition_bytes,
        fetch_bytes=options.fetch_bytes, options=options.cluster.options,
    )  # fmt: skip
    may_have_gaps: bool | None = None
    with reader:
        next_offset, last_progress = wanted.start, time.monotonic()
        while not reader.is_done:
            portions = reader.poll_data()
            if not _is_of_topic(reader, wanted, fails=is_strict):
                return
            began = min([reader.offsets[wanted.partition], *(portion.fetch_offset for portion in portions)])
            if began < next_offset:
                report_loss(f"{wanted}: what is behind offset {next_offset} is not there any more", fails=is_strict)
                return
            for portion in portions:
                if portion.gap is not None and portion.gap[0] < wanted.end and not may_have_gaps:
                    may_have_gaps = _is_compacted(options, wanted.topic)
                    _check_gap(wanted, portion.gap, may_have_gaps=may_have_gaps, fails=is_strict)
                yield portion
            next_offset = reader.offsets[wanted.partition]
            if portions:
                last_progress = time.monotonic()
            elif time.monotonic() - last_progress > options.poll_timeout_ms / 1000:
                _check_end(options, wanted, next_offset)
                return


def _is_of_topic(reader: Reader, wanted: OffsetRange, *, fails: bool) -> bool:
    if reader.topic_id is None or topic_id_text(reader.topic_id) == wanted.topic_id:
        return True
    report_loss(f"topic {wanted.topic} was deleted and created again", fails=fails)
    return False


def _check_end(options: SourceOptions, wanted: OffsetRange, next_offset: int) -> None:
    """Why nothing comes: the log is shorter than it was, or nobody answers in time."""
    with options.cluster.admin() as admin:
        ends = admin.find_offsets(wanted.topic, LATEST, [wanted.partition], options.isolation)
    if ends[wanted.partition] < wanted.end:
        sentence = f"{wanted}: the partition ends at offset {ends[wanted.partition]} now"
        return report_loss(sentence, fails=options.fails_on_data_loss)
    raise TimeoutError(
        f"{wanted}: nothing came behind offset {next_offset} within {options.poll_timeout_ms} ms "
        "(option kafkaConsumer.pollTimeoutMs)"
    )


def _is_compacted(options: SourceOptions, topic: str) -> bool:
    with options.cluster.admin() as admin:
        [configs] = admin.describe_configs([Resource(ResourceKind.TOPIC, topic)], ["cleanup.policy"])
    return any("compact" in (entry.value or "") for entry in configs.entries)


def _check_gap(wanted: OffsetRange, gap: tuple[int, int], *, may_have_gaps: bool, fails: bool) -> None:
    if not may_have_gaps:
        place = f"topic {wanted.topic}, partition {wanted.partition}"
        report_loss(f"{place} has no offsets {gap[0]} to {gap[1] - 1}", fails=fails)
