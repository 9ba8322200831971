"""Groups as an administrator sees them: who is in them, what they have committed, how far they are behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.client.admin.types import GroupDescription, GroupLag, GroupListing
from ottla.client.checks import checked_names
from ottla.client.consumer.visible_count import Advance, count_visible
from ottla.client.errors import (
    ClientError,
    ServerError,
    UnknownTopicOrPartition,
    UnsupportedByBroker,
    all_or_error,
    raise_for,
)
from ottla.client.group.assignors import by_topic
from ottla.client.group.commits import LAST_VERSION_BY_NAME, commit_request, fetch_committed
from ottla.client.group.coordinator import Coordinator, CoordinatorKind
from ottla.client.group.description import CLASSIC, describe_group
from ottla.client.group.offsets import Membership, Offset, TopicPartition, as_offsets, as_places
from ottla.client.network.cluster import Cluster
from ottla.client.offsets import EARLIEST, LATEST, Isolation, find_offsets
from ottla.wire.apis import LIST_GROUPS
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.offset_commit import OffsetCommitResponse
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

T = TypeVar("T")

_FIRST_VERSION_WITH_STATES = 4
_FIRST_VERSION_WITH_TYPES = 5


class _Edges(NamedTuple):
    start_offset: int
    end_offset: int


class GroupAdmin:
    """The part of an Admin that is about groups."""

    _cluster: Cluster

    async def list_groups(self, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
        """The groups of all brokers, those in one of the states and of one of the types where any are named."""
        states, types = checked_names(states, "states"), checked_names(types, "types")
        version = await self._cluster.retry(lambda: self._cluster.highest_version(LIST_GROUPS))
        if (states and version < _FIRST_VERSION_WITH_STATES) or (types and version < _FIRST_VERSION_WITH_TYPES):
            raise UnsupportedByBroker("the broker is too old to choose groups by state or type")
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        brokers = (await self._cluster.retry(lambda: self._cluster.refresh([]))).brokers
        listed = await asyncio.gather(*(self._groups_of(node_id, request) for node_id in brokers))
        return sorted(group for groups in listed for group in groups)

    async def _groups_of(self, node_id: int, request: ListGroupsRequest) -> list[GroupListing]:
        async def attempt() -> ListGroupsResponse:
            answer = await self._cluster.ask(node_id, request, ListGroupsResponse)
            raise_for(answer.error_code, about=f"the groups of broker {node_id}")
            return answer

        return [
            GroupListing(row.group_id, row.group_type.lower() or CLASSIC, row.group_state, row.protocol_type, node_id)
            for row in (await self._cluster.retry(attempt)).groups
        ]

    async def describe_groups(self, group_ids: Sequence[str]) -> list[GroupDescription]:
        """In the order of the names, whichever of the two protocols they follow."""
        group_ids = checked_names(group_ids, "group_ids")
        return await _each(describe_group(self._coordinator(group_id), group_id) for group_id in group_ids)

    async def delete_groups(self, group_ids: Sequence[str]) -> list[str]:
        """With all their offsets. A group that has members is refused."""
        group_ids = checked_names(group_ids, "group_ids")
        return await _each(self._delete_group(group_id) for group_id in group_ids)

    async def _delete_group(self, group_id: str) -> str:
        """A group that is not there, after an answer was lost, is one that was deleted."""
        coordinator = self._coordinator(group_id)
        request = DeleteGroupsRequest(groups_names=[group_id])
        is_lost = False

        async def attempt() -> None:
            nonlocal is_lost
            try:
                answer = await coordinator.ask(request, DeleteGroupsResponse)
            except ClientError:
                is_lost = True
                raise
            error = coordinator.error(next((row.error_code for row in answer.results), ErrorCode.UNKNOWN_SERVER_ERROR))
            if error is not None and not (is_lost and error.code == ErrorCode.GROUP_ID_NOT_FOUND):
                raise error

        await self._cluster.retry(attempt)
        return group_id

    # Offsets.

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, must_be_stable: bool = False
    ) -> dict[TopicPartition, Offset]:
        """What a group has committed, of all partitions if none are named. One that nobody knows has nothing.

        Stable: while a transaction is open that may change one of them, its end is waited for.
        """
        coordinator = self._coordinator(group_id)
        named = None if partitions is None else as_places(partitions)
        return await self._cluster.retry(
            lambda: fetch_committed(coordinator, group_id, named, must_be_stable=must_be_stable)
        )

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, Offset | int]
    ) -> list[TopicPartition]:
        """Commit in place of the members, which the group must have none of. One that is not there comes to be."""
        if not offsets:
            return []
        coordinator = self._coordinator(group_id)
        request = commit_request(Membership(group_id), as_offsets(offsets), {})
        answer = await coordinator.ask_patiently(
            request, OffsetCommitResponse, _code_of_all, at_most=LAST_VERSION_BY_NAME
        )
        codes = _codes(answer)
        if ErrorCode.UNKNOWN_MEMBER_ID in codes.values():  # nobody in particular is a member of it: others are
            raise ServerError(ErrorCode.NON_EMPTY_GROUP, about=coordinator.about)
        return _places_or_error(codes)

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Of topics that no member of the group subscribes to."""
        topics = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in by_topic(as_places(partitions)).items()
        ]
        coordinator = self._coordinator(group_id)
        request = OffsetDeleteRequest(group_id=group_id, topics=topics)
        answer = await coordinator.ask_patiently(request, OffsetDeleteResponse, lambda answer: answer.error_code)
        raise_for(answer.error_code, about=coordinator.about)
        return _places_or_error(_codes(answer))

    # Lag.

    async def group_lags(
        self, group_id: str, partitions: Iterable[TopicPartition] = (), *, in_records: bool = True
    ) -> dict[TopicPartition, GroupLag]:
        """Of all partitions for which the group has committed something, and of those that are named.

        To count records all that the group has not read yet is fetched, so it takes the time of reading it;
        without `in_records` there is only the difference of offsets.
        """
        named = as_places(partitions)
        committed = await self.list_group_offsets(group_id)
        places = sorted({*committed, *named})
        edges = await self._edges(places)
        counts: dict[TopicPartition, int] = {}
        if in_records:
            ranges = {
                place: (max(committed[place].offset, edges[place].start_offset), edges[place].end_offset)
                for place in places
                if place in committed and place in edges
            }
            counts = await count_visible(self._cluster, ranges)
        lags = {}
        for place in places:
            start_offset, end_offset = edges.get(place, (None, None))
            lags[place] = GroupLag(committed.get(place), start_offset, end_offset, counts.get(place))
        return lags

    async def count_records(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], advance: Advance = lambda *_: None
    ) -> dict[TopicPartition, int]:
        """How many records a reader of committed ones would get from an offset of each partition on, below another.

        `advance` is told of each partition how many offsets were passed, as the work goes on.
        """
        edges = await self._edges(as_places(ranges))
        bounded = {}
        for place, (start_offset, end_offset) in ranges.items():
            if place not in edges:
                raise UnknownTopicOrPartition(topic=place.topic, partition=place.partition)
            bounded[place] = max(start_offset, edges[place].start_offset), min(end_offset, edges[place].end_offset)
        return await count_visible(self._cluster, bounded, advance)

    async def _edges(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, _Edges]:
        """Where partitions begin and end, for readers of committed records. What is not there is left out."""
        topics = by_topic(places)
        found = await asyncio.gather(*(self._edges_of(topic, indexes) for topic, indexes in topics.items()))
        return {place: edges for each in found for place, edges in each.items()}

    async def _edges_of(self, topic: str, indexes: list[int]) -> dict[TopicPartition, _Edges]:
        try:
            count = len((await self._cluster.topic(topic)).partitions)
        except UnknownTopicOrPartition:
            return {}
        there = [index for index in indexes if index < count]
        starts, ends = await asyncio.gather(
            find_offsets(self._cluster, topic, there, EARLIEST),
            find_offsets(self._cluster, topic, there, LATEST, Isolation.READ_COMMITTED),
        )
        return {TopicPartition(topic, index): _Edges(starts[index], ends[index]) for index in there}

    def _coordinator(self, group_id: str) -> Coordinator:
        return Coordinator(self._cluster, CoordinatorKind.GROUP, group_id)


async def _each(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All at the same time; the results in their order."""
    results = await asyncio.gather(*work, return_exceptions=True)
    errors: list[ServerError] = []
    done: list[T] = []
    for result in results:
        if isinstance(result, ServerError):
            errors.append(result)
        elif isinstance(result, BaseException):
            raise result
        else:
            done.append(result)
    return all_or_error(errors, done)


def _codes(answer: OffsetCommitResponse | OffsetDeleteResponse) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic in answer.topics:
        found |= {TopicPartition(topic.name, row.partition_index): row.error_code for row in topic.partitions}
    return found


def _code_of_all(answer: OffsetCommitResponse) -> int:
    """What is wrong with the coordinator or the group stands in every row; a topic that is not there, in its own."""
    its_own = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return next((code for code in _codes(answer).values() if code not in its_own), ErrorCode.NONE)


def _places_or_error(codes: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    errors = [ServerError(code, topic=place.topic, partition=place.partition) for place, code in codes.items() if code]
    return all_or_error(errors, [place for place, code in codes.items() if not code])
