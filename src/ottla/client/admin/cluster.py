"""The brokers of a cluster and who of them leads what: descriptions, elections, moves of partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ottla.client.admin.types import Broker, ClusterDescription, ElectionKind, Reassignment
from ottla.client.errors import BrokerUnreachable, ServerError, all_or_error, raise_for
from ottla.client.group.offsets import TopicPartition, as_place, as_places
from ottla.client.network.address import Address
from ottla.client.network.cluster import Cluster
from ottla.client.network.retry import Patience
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.wire.schema import Request, Response

R = TypeVar("R", bound=Response)


class ClusterAdmin:
    """The part of an Admin that is about the cluster."""

    _cluster: Cluster

    async def describe_cluster(self) -> ClusterDescription:
        """Its id, its brokers, and which of them is the controller."""
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)

        async def attempt() -> DescribeClusterResponse:
            answer = await self._cluster.ask_any(request, DescribeClusterResponse)
            raise_for(answer.error_code, answer.error_message, about="the cluster")
            return answer

        answer = await self._cluster.retry(attempt)
        brokers = (Broker(row.broker_id, Address(row.host, row.port), row.rack) for row in answer.brokers)
        return ClusterDescription(answer.cluster_id, answer.controller_id, tuple(sorted(brokers)))

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, kind: ElectionKind = ElectionKind.PREFERRED
    ) -> list[TopicPartition]:
        """Have the preferred replica lead each partition, or anybody where nobody does; those that were changed.

        Without partitions: all that need it. A partition whose leader is the right one already is no error.
        """
        asked = None if partitions is None else _by_topic(partitions)
        request = ElectLeadersRequest(
            election_type=kind,
            topic_partitions=None
            if asked is None
            else [TopicPartitions(topic=name, partitions=indexes) for name, indexes in asked.items()],
            timeout_ms=self._timeout_ms,
        )
        answer = await self._ask_controller(request, ElectLeadersResponse, lambda answer: {answer.error_code})
        raise_for(answer.error_code, about="the election")
        errors, done = [], []
        for topic in answer.replica_election_results:
            self._cluster.forget(topic.topic)
            for row in topic.partition_result:
                place = TopicPartition(topic.topic, row.partition_id)
                if not row.error_code:
                    done.append(place)
                elif row.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                    errors.append(_error_at(place, row.error_code, row.error_message))
        return all_or_error(errors, done)

    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, may_change_count: bool = True
    ) -> list[TopicPartition]:
        """Begin to move partitions to these brokers, the preferred leader first; None gives up a move.

        It has begun when this returns. `list_partition_reassignments` tells of those that are not over.
        """
        topics: defaultdict[str, list[ReassignablePartition]] = defaultdict(list)
        for given, brokers in replicas.items():
            place = as_place(given)
            wanted = None if brokers is None else list(brokers)
            topics[place.topic].append(ReassignablePartition(partition_index=place.partition, replicas=wanted))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._timeout_ms,
            allow_replication_factor_change=may_change_count,
            topics=[ReassignableTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )
        answer = await self._ask_controller(
            request, AlterPartitionReassignmentsResponse, lambda answer: {answer.error_code}
        )
        raise_for(answer.error_code, answer.error_message, about="the reassignment")
        errors, done = [], []
        for topic in answer.responses:
            self._cluster.forget(topic.name)
            for row in topic.partitions:
                place = TopicPartition(topic.name, row.partition_index)
                if row.error_code:
                    errors.append(_error_at(place, row.error_code, row.error_message))
                else:
                    done.append(place)
        return all_or_error(errors, done)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The moves that are under way, of all partitions or of these."""
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
                for name, indexes in _by_topic(partitions).items()
            ]
        request = ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=topics)

        async def attempt() -> ListPartitionReassignmentsResponse:
            answer = await self._ask_controller(
                request, ListPartitionReassignmentsResponse, lambda answer: {answer.error_code}
            )
            raise_for(answer.error_code, answer.error_message, about="the reassignments")
            return answer

        answer = await self._cluster.retry(attempt)
        return {
            TopicPartition(topic.name, row.partition_index): Reassignment(
                tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
            )
            for topic in answer.topics
            for row in topic.partitions
        }

    async def unregister_broker(self, node_id: int) -> None:
        """Have the cluster forget a broker that will not come back. What it has replicas of stays as it is."""
        answer = await self._ask_controller(
            UnregisterBrokerRequest(broker_id=node_id), UnregisterBrokerResponse, lambda answer: {answer.error_code}
        )
        raise_for(answer.error_code, answer.error_message, about=f"broker {node_id}")

    @property
    def _timeout_ms(self) -> int:
        return self._cluster.options.request_timeout_ms

    async def _ask_controller(self, request: Request, answer: type[R], codes: Callable[[R], set[int]]) -> R:
        """The controller's answer. A broker that is not the controller any more has done nothing: ask again."""
        options = self._cluster.options
        patience = Patience(options.retry_timeout_ms, options.retry_pause_ms)
        while True:
            try:
                answered = await self._cluster.ask_controller(request, answer)
            except BrokerUnreachable:  # nothing was sent: the controller may be elsewhere by now
                if not await patience.pause():
                    raise
                continue
            if ErrorCode.NOT_CONTROLLER not in codes(answered) or not await patience.pause():
                return answered
            self._cluster.forget_controller()


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for place in as_places(partitions):
        topics[place.topic].append(place.partition)
    return topics


def _error_at(place: TopicPartition, code: int, message: str | None) -> ServerError:
    return ServerError(code, message, topic=place.topic, partition=place.partition)
