"""Reading topics at once: from one edge to another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ottla.client import AtTime, TopicPartition
from ottla.pipelines.catalog import Catalog, topic_id_text
from ottla.pipelines.data_loss import report_loss
from ottla.pipelines.offset_range import OffsetRange, split
from ottla.pipelines.pushed_filters import PushedFilters
from ottla.pipelines.range_reader import read_range
from ottla.pipelines.source_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa


class FilterPush:
    """`pushFilters` of the reader, as it is called.

    In a session that does not push filters Spark refuses a reader that has this method, although it would read right.
    It knows such a reader by the function behind the method: so this shows that of the base class.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, filters: PushedFilters) -> None:
        self._filters = filters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return [one for one in filters if not self._filters.take(one)]


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._filters = PushedFilters()

    @property
    def pushFilters(self) -> FilterPush:  # noqa: N802 - Spark's name
        return FilterPush(self._filters)

    def partitions(self) -> list[OffsetRange]:
        catalog = Catalog(self._options)
        try:
            return self._ranges(catalog)
        finally:
            catalog.close()

    def _ranges(self, catalog: Catalog) -> list[OffsetRange]:
        topics = catalog.topics()
        places = catalog.places(topics)
        starts = catalog.resolve(self._options.start, places, "startingOffsets")
        ends = catalog.resolve(self._options.end, places, "endingOffsets")
        places = [place for place in places if self._filters.takes(place)]
        edges = catalog.edges(places)
        ranges = []
        for place in places:
            start, end = self._within(place, starts[place], ends[place], edges[place])
            start, end = self._filters.narrow(start, end)
            ranges.append(
                OffsetRange(place.topic, topic_id_text(topics[place.topic].topic_id), place.partition, start, end)
            )
        ranges = self._narrow_by_time(catalog, [one for one in ranges if one.size > 0])
        return split(ranges, self._options.least_partitions, self._options.records_per_partition)

    def _within(self, place: TopicPartition, start: int, end: int, edges: tuple[int, int]) -> tuple[int, int]:
        """The range as the partition has it. That something of it is missing is a loss."""
        first, limit = edges
        if not first <= start <= limit or end > limit:
            report_loss(
                f"{place} has the offsets from {first} to {limit}, not from {start} to {end}",
                fails=self._options.fails_on_data_loss,
            )
        return max(start, first), min(end, limit)

    def _narrow_by_time(self, catalog: Catalog, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Where times are asked for, nothing is read that comes before the first record of that time."""
        least, limit = self._filters.least_time_ms, self._filters.time_limit_ms
        ranges = [replace(one, least_time_ms=least, time_limit_ms=limit) for one in ranges]
        if least is None:
            return ranges
        firsts = catalog.find(AtTime(least), [TopicPartition(one.topic, one.partition) for one in ranges])
        return [replace(one, start=max(one.start, firsts[TopicPartition(one.topic, one.partition)])) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, OffsetRange):  # where there is nothing to read, Spark asks with None
            yield from read_range(self._options, partition)
