"""Records and where they lie, as an administrator sees them: deleting the oldest, and the folders of brokers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ottla.client.admin.types import LogDir, LogDirPartition
from ottla.client.checks import check_offset
from ottla.client.errors import ServerError, all_or_error, raise_for
from ottla.client.group.offsets import TopicPartition, as_place, as_places
from ottla.client.network.cluster import Cluster
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

_ALL = -1
"""In place of an offset: what there is."""


class RecordAdmin:
    """The part of an Admin that is about records."""

    _cluster: Cluster

    async def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes what is before an offset in each partition, all of it for -1. The offsets at which they begin now.

        To ask again does no harm, so it is tried again until it is done.
        """
        errors: list[ServerError] = []
        done: list[tuple[TopicPartition, int]] = []
        wanted = {as_place(place): offset for place, offset in offsets.items()}
        for offset in wanted.values():
            if offset != _ALL:
                check_offset(offset)
        for place, offset in wanted.items():
            try:
                done.append((place, await self._cluster.retry(lambda: self._delete(place, offset))))  # noqa: B023
            except ServerError as error:
                errors.append(error)
        return dict(all_or_error(errors, done))

    async def _delete(self, place: TopicPartition, offset: int) -> int:
        partition = await self._cluster.partition(place.topic, place.partition)
        asked = DeleteRecordsTopic(
            name=place.topic, partitions=[DeleteRecordsPartition(partition_index=place.partition, offset=offset)]
        )
        request = DeleteRecordsRequest(topics=[asked], timeout_ms=self._cluster.options.request_timeout_ms)
        answer = await self._cluster.ask(partition.leader_id, request, DeleteRecordsResponse)
        [row] = answer.topics[0].partitions
        if row.error_code:
            self._cluster.forget(place.topic)
        raise_for(row.error_code, topic=place.topic, partition=place.partition)
        return row.low_watermark

    async def describe_log_dirs(
        self, node_ids: Iterable[int] | None = None, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[int, list[LogDir]]:
        """The folders of brokers, all of them if none are named, and what lies in them: all, or these partitions."""
        brokers = (await self._cluster.retry(lambda: self._cluster.refresh([]))).brokers
        topics: defaultdict[str, list[int]] | None = None
        if partitions is not None:
            topics = defaultdict(list)
            for place in as_places(partitions):
                topics[place.topic].append(place.partition)
        asked = (
            None
            if topics is None
            else [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics.items()]
        )
        request = DescribeLogDirsRequest(topics=asked)
        return {
            node_id: await self._cluster.retry(lambda: self._log_dirs_of(node_id, request))  # noqa: B023
            for node_id in (brokers if node_ids is None else node_ids)
        }

    async def _log_dirs_of(self, node_id: int, request: DescribeLogDirsRequest) -> list[LogDir]:
        answer = await self._cluster.ask(node_id, request, DescribeLogDirsResponse)
        raise_for(answer.error_code, about=f"the folders of broker {node_id}")
        found = []
        for row in answer.results:
            error = ServerError(row.error_code, about=row.log_dir) if row.error_code else None
            lie = tuple(
                LogDirPartition(
                    TopicPartition(topic.name, one.partition_index),
                    one.partition_size,
                    one.offset_lag,
                    one.is_future_key,
                )
                for topic in row.topics
                for one in topic.partitions
            )
            found.append(LogDir(row.log_dir, error, row.total_bytes, row.usable_bytes, lie))
        return found
