"""Consumers of a simulated cluster: a member of a group that commits what it has read, and one who reads everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ottla.broker.network.peer import PeerFailure
from ottla.records.read import read_batches
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.checker.history import (
    Assigned,
    EndSeen,
    Isolation,
    OffsetCommitted,
    Outcome,
    Place,
    Polled,
    Positioned,
    Revoked,
)
from tests.sim.client import GROUP, Client, Work

FETCH_VERSION, LIST_OFFSETS_VERSION, HEARTBEAT_VERSION, COMMIT_VERSION, OFFSETS_VERSION = 12, 7, 1, 9, 9
ISOLATION_LEVELS = {Isolation.UNCOMMITTED: 0, Isolation.COMMITTED: 1}
LATEST = -1


class Reader(Client):
    """Reads partitions from their start to their end, and says what it has seen."""

    def fetch(self, place: Place, offset: int, isolation: Isolation, wait_ms: int = 0) -> Work[PartitionData | None]:
        """What a leader gave; None where there was no leader, or it gave an error that passes."""
        endpoint = yield from self.leader_of(place)
        wanted = FetchPartition(partition=place.partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, isolation_level=ISOLATION_LEVELS[isolation],
            topics=[FetchTopic(topic=place.topic, partitions=[wanted])],
        )  # fmt: skip
        answer = yield from self.ask(endpoint, request, FETCH_VERSION)
        if isinstance(answer, PeerFailure) or answer.error_code:
            return None
        data = cast(PartitionData, answer.responses[0].partitions[0])
        if not data.error_code:
            return data
        if not self.is_passing(data.error_code):
            self.wrong.append(f"{self.process}: {ErrorCode(data.error_code).name} at {offset} of {place}")
            self.forget()
        return None

    def poll(self, place: Place, offset: int, isolation: Isolation, wait_ms: int = 0) -> Work[int | None]:
        """Read once from an offset, and note that; where to read on, None if it did not work."""
        data = yield from self.fetch(place, offset, isolation, wait_ms)
        if data is None:
            return None
        records, next_offset = visible(data, offset, isolation)
        self.note(Polled, place=place, isolation=isolation, records=tuple(records), next_offset=next_offset)
        return next_offset

    def read_all(self, places: Sequence[Place]) -> Work[None]:
        """When all transactions are over, whose ends may come a moment later than the answer to who ended them."""
        for place in places:
            at_ns = self.story.moment()
            end = yield from self._end_of(place, Isolation.UNCOMMITTED)
            self.note(EndSeen, at_ns=at_ns, place=place, offset=end)
            while (yield from self._end_of(place, Isolation.COMMITTED)) < end:
                yield from self.pause()
            for isolation in (Isolation.UNCOMMITTED, Isolation.COMMITTED):
                self.lives += 1
                yield from self._read_until(place, end, isolation)

    def _read_until(self, place: Place, end: int, isolation: Isolation) -> Work[None]:
        self.note(Positioned, place=place, offset=0)
        offset = 0
        while offset < end:
            found = yield from self.poll(place, offset, isolation)
            if found is None:
                yield from self.pause()
            elif found == offset:
                self.wrong.append(f"{place} cannot be read at {offset}, and ends at {end}")
                return
            else:
                offset = found

    def _end_of(self, place: Place, isolation: Isolation) -> Work[int]:
        while True:
            endpoint = yield from self.leader_of(place)
            wanted = ListOffsetsPartition(partition_index=place.partition, timestamp=LATEST)
            request = ListOffsetsRequest(
                replica_id=-1, isolation_level=ISOLATION_LEVELS[isolation],
                topics=[ListOffsetsTopic(name=place.topic, partitions=[wanted])],
            )  # fmt: skip
            answer = yield from self.ask(endpoint, request, LIST_OFFSETS_VERSION)
            if not isinstance(answer, PeerFailure):
                found = answer.topics[0].partitions[0]
                if not found.error_code:
                    return int(found.offset)
                self.is_passing(found.error_code)
            yield from self.pause()


class Member(Reader):
    """Of a group: reads what is committed, and commits how far it is."""

    def __init__(self, *arguments: Any, group: str, topic: str) -> None:
        super().__init__(*arguments)
        self._group = group
        self._topic = topic
        self._topic_id: Any = None
        self._member_id = ""
        self._epoch = 0
        self._positions: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self.passed: dict[Place, int] = {}

    def run(self) -> Work[None]:
        while self.is_wanted:
            self.lives += 1
            self._member_id, self._epoch = self.process, 0
            self._positions.clear()
            self._committed.clear()
            while (yield from self._beat()):
                yield from self._work()
            for partition in list(self._positions):
                self.note(Revoked, place=Place(self._topic, partition))
            self._positions.clear()
            yield from self.pause()
        if self._epoch > 0:
            yield from self._leave()

    def _work(self) -> Work[None]:
        for partition in list(self._positions):
            place = Place(self._topic, partition)
            found = yield from self.poll(place, self._positions[partition], Isolation.COMMITTED, wait_ms=20)
            if found is not None:
                self._positions[partition] = self.passed[place] = found
            else:
                yield from self.pause()
            if self.random.random() < 0.4:
                yield from self._commit(place)
        yield from self.sleep(self.random.choice([0.0, 0.05, 0.2]))

    # The group

    def _beat(self) -> Work[bool]:
        """Whether it is a member still, and wants to be."""
        if not self.is_wanted:
            return False
        owned = [TopicPartitions(topic_id=self._topic_id, partitions=sorted(self._positions))]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self._member_id, member_epoch=self._epoch, rebalance_timeout_ms=2_000,
            subscribed_topic_names=[self._topic], topic_partitions=owned if self._positions else [],
        )  # fmt: skip
        endpoint = yield from self.coordinator_of(GROUP, self._group)
        answer = yield from self.ask(endpoint, request, HEARTBEAT_VERSION)
        if isinstance(answer, PeerFailure) or self.is_passing(answer.error_code):
            yield from self.pause()
            return True
        if answer.error_code:
            return False
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            yield from self._take(answer.assignment)
        return True

    def _take(self, assignment: Any) -> Work[None]:
        owned = {partition for topic in assignment.topic_partitions for partition in topic.partitions}
        for topic in assignment.topic_partitions:
            self._topic_id = topic.topic_id
        for partition in [partition for partition in self._positions if partition not in owned]:
            self.note(Revoked, place=Place(self._topic, partition))
            del self._positions[partition]
        for partition in sorted(owned - self._positions.keys()):
            at_ns = self.story.moment()
            offset = yield from self._offset_of(partition)
            if offset is not None:
                place = Place(self._topic, partition)
                self.note(Assigned, at_ns=at_ns, group=self._group, place=place, offset=offset)
                self._positions[partition] = self._committed[partition] = offset

    def _offset_of(self, partition: int) -> Work[int | None]:
        """What the group has committed; None if it does not know this member any more."""
        wanted = OffsetFetchRequestTopics(name=self._topic, partition_indexes=[partition])
        asked = OffsetFetchRequestGroup(
            group_id=self._group, member_id=self._member_id, member_epoch=self._epoch, topics=[wanted]
        )
        while True:
            endpoint = yield from self.coordinator_of(GROUP, self._group)
            request = OffsetFetchRequest(groups=[asked], require_stable=True)
            answer = yield from self.ask(endpoint, request, OFFSETS_VERSION)
            if not isinstance(answer, PeerFailure):
                found = answer.groups[0]
                code = found.error_code or found.topics[0].partitions[0].error_code
                if not code:
                    return max(int(found.topics[0].partitions[0].committed_offset), 0)
                if not self.is_passing(code):
                    return None
            yield from self.pause()

    def _commit(self, place: Place) -> Work[None]:
        offset = self._positions[place.partition]
        if offset == self._committed[place.partition]:
            return
        row = OffsetCommitRequestPartition(
            partition_index=place.partition, committed_offset=offset, committed_metadata=None
        )
        request = OffsetCommitRequest(
            group_id=self._group, generation_id_or_member_epoch=self._epoch, member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=[row])],
        )  # fmt: skip
        endpoint = yield from self.coordinator_of(GROUP, self._group)
        answer = yield from self.ask(endpoint, request, COMMIT_VERSION)
        if isinstance(answer, PeerFailure):
            return
        code = answer.topics[0].partitions[0].error_code
        if not code:
            self._committed[place.partition] = offset
            self.note(OffsetCommitted, group=self._group, place=place, offset=offset, outcome=Outcome.OK)
        else:
            self.is_passing(code)

    def _leave(self) -> Work[None]:
        request = ConsumerGroupHeartbeatRequest(group_id=self._group, member_id=self._member_id, member_epoch=-1)
        endpoint = yield from self.coordinator_of(GROUP, self._group)
        yield from self.ask(endpoint, request, HEARTBEAT_VERSION)


def visible(data: PartitionData, offset: int, isolation: Isolation) -> tuple[list[tuple[int, str]], int]:
    """Offsets and values that a consumer gives to its user, and where it reads on."""
    aborted = sorted((entry.first_offset, entry.producer_id) for entry in data.aborted_transactions or ())
    found: list[tuple[int, str]] = []
    dropped: set[int] = set()
    next_offset = offset
    for batch in read_batches(cast(bytes, data.records or b""), with_control=True):
        header = batch.header
        next_offset = max(next_offset, header.next_offset)
        while aborted and aborted[0][0] <= header.last_offset:
            dropped.add(aborted.pop(0)[1])
        if header.is_control:
            dropped.discard(header.producer_id)
        elif isolation is Isolation.UNCOMMITTED or not (header.is_transactional and header.producer_id in dropped):
            found += [
                (record.offset, (record.value or b"").decode()) for record in batch.records() if record.offset >= offset
            ]
    return found, next_offset
