"""Fetch for other replicas: a leader gives them what it has, and learns from what they ask for how far they are.

Each follower has one session, which ends with its connection. The session waits on all its partitions and remembers
those that have something new, so that a request costs what is new and not what is followed. The high watermark alone
is no reason to answer at once: the next records tell it, or a short timer does.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, cast

from ottla.broker.fetch_answers import NO_RECORDS, answered_topic, failed, found
from ottla.broker.fetch_sessions import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    INITIAL_EPOCH,
    LARGEST_EPOCH,
    MOST_UNKNOWN,
    Key,
    is_name_kept,
)
from ottla.broker.loop.slices import Steps, finished
from ottla.broker.replication.throttle import LEADER, ReplicationThrottle
from ottla.log.errors import LogError, OffsetOutOfRange
from ottla.replica.readers import Bound
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.loop import Timer
    from ottla.broker.network.connection import Connection
    from ottla.replica.partition import Partition

AT_ONCE = 500  # partitions that are looked at without letting others in between
HIGH_WATERMARK_SECONDS = 0.005  # how long a new high watermark waits for records to go with
FIRST_VERSION_WITH_LEADER = 16


class SessionPartition:
    """One partition of a session."""

    __slots__ = ("asked", "has_progress", "partition", "told")

    def __init__(self, asked: FetchPartition) -> None:
        self.asked = asked
        self.has_progress = True  # the position is to be reported
        self.partition: Partition | None = None  # that is waited on
        self.told = (-1, -1)  # high watermark and log start offset

    def ask(self, asked: FetchPartition) -> None:
        """The follower has another position."""
        self.asked = asked
        self.has_progress = True


class ReplicaSessions:
    """The sessions of all followers, each with the connection that it began on."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._by_connection: dict[Connection, ReplicaSession] = {}
        self.throttle = ReplicationThrottle(LEADER, broker.settings, broker.node_id, broker.steady_ms)
        self._ends: dict[Connection, Callable[[], None]] = {}  # what each calls when it is closed
        self._ids = itertools.count(1)

    def __len__(self) -> int:
        return len(self._by_connection)

    def have_asked(self, replicas: Iterable[int], within_seconds: float) -> bool:
        """Whether all of these have asked for something, not longer ago than that."""
        since = self._broker.loop.now() - within_seconds
        recent = {session.replica for session in self._by_connection.values() if session.asked_at >= since}
        return recent.issuperset(replicas)

    def handle(self, request: FetchRequest, context: Context) -> FetchResponse | Steps | None:
        """Answer a replica, now or later; in steps where it names very many partitions."""
        epoch, connection = request.session_epoch, context.connection
        known = self._by_connection.get(connection)
        if epoch <= INITIAL_EPOCH:
            if known is not None:
                self._end(connection)
            session = ReplicaSession(self._broker, context, next(self._ids), replica_of(request), self.throttle)
            if epoch == INITIAL_EPOCH:
                self._keep(session, connection)
        elif known is None or request.session_id != known.session_id:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
        elif epoch != known.epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, responses=[])
        else:
            session = known
        session.asked_at = self._broker.loop.now()
        steps = self._begin(session, request, context)
        named = sum(len(topic.partitions) for topic in request.topics)
        named += sum(len(topic.partitions) for topic in request.forgotten_topics_data)
        return steps if named > AT_ONCE else cast("FetchResponse | None", finished(steps))

    def _begin(self, session: ReplicaSession, request: FetchRequest, context: Context) -> Steps:
        has_room = yield from session.take(request)
        if not has_room and session.is_kept:
            self._end(context.connection)  # this request is answered, and the next has to name all it wants
        return session.begin(request, context)

    def _keep(self, session: ReplicaSession, connection: Connection) -> None:
        self._ends[connection] = functools.partial(self._end, connection)
        connection.call_when_closed(self._ends[connection])
        self._by_connection[connection] = session
        session.is_kept = True

    def _end(self, connection: Connection) -> None:
        session = self._by_connection.pop(connection)
        connection.forget_call(self._ends.pop(connection))
        session.end()


def replica_of(request: FetchRequest) -> int:
    """The id of the replica that asks; below 0 it is a consumer."""
    state = request.replica_state
    return request.replica_id if state is None else state.replica_id


class ReplicaSession:
    def __init__(
        self, broker: Broker, context: Context, session_id: int, replica: int, throttle: ReplicationThrottle
    ) -> None:
        self.session_id = session_id
        self.epoch = 0
        self.is_kept = False
        self._broker = broker
        self.replica = replica
        self.asked_at = 0.0
        self._throttle = throttle
        self._uses_ids = context.version >= FIRST_VERSION_WITH_TOPIC_IDS
        self._broker_epoch = -1
        self._followed: dict[Key, SessionPartition] = {}
        self._strangers: set[Key] = set()  # those of them that were not here when they were named
        self._keys: dict[Partition, Key] = {}
        self._fresh: dict[Key, None] = {}  # that may have something to tell
        self._request: FetchRequest | None = None  # that waits for its answer
        self._context = context
        self._found: dict[Key, PartitionData] = {}
        self._found_bytes = 0
        self._has_news = False  # that is told at once
        self._timer: Timer | None = None
        self._is_late = False
        self._is_called = False

    # What is followed

    def take(self, request: FetchRequest) -> Generator[None, None, bool]:
        """The partitions that a request names, or has no use for any more; False: somebody made up too many of them."""
        taken = 0
        self.epoch = 1 if self.epoch == LARGEST_EPOCH else self.epoch + 1
        state = request.replica_state
        self._broker_epoch = -1 if state is None else state.replica_epoch
        for topic in request.topics:
            name: str | bytes = topic.topic_id if self._uses_ids else topic.topic
            for asked in topic.partitions:
                key = name, asked.partition
                known = self._followed.get(key)
                if known is None:
                    self._followed[key] = SessionPartition(asked)
                    if self._broker.topics.find(key) is None:
                        self._strangers.add(key)
                else:
                    known.ask(asked)
                self._fresh[key] = None
                taken += 1
                if not taken % AT_ONCE:
                    yield
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if self._uses_ids else forgotten.topic
            for index in forgotten.partitions:
                self._forget((name, index))
                taken += 1
                if not taken % AT_ONCE:
                    yield
        if len(self._strangers) > MOST_UNKNOWN:
            self._strangers = {key for key in self._strangers if self._broker.topics.find(key) is None}
        return len(self._strangers) <= MOST_UNKNOWN and all(is_name_kept(key) for key in self._strangers)

    def _forget(self, key: Key) -> None:
        followed = self._followed.pop(key, None)
        self._fresh.pop(key, None)
        self._strangers.discard(key)
        if followed is not None and followed.partition is not None:
            self._stop_waiting(followed.partition)

    def _stop_waiting(self, partition: Partition) -> None:
        self._keys.pop(partition, None)
        partition.stop_waiting(self)

    def end(self) -> None:
        """The follower is gone, or begins anew."""
        for partition in self._keys:
            partition.stop_waiting(self)
        self._keys.clear()
        self.is_kept = False
        self._request = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        """A partition has records, another high watermark, or is no more what it was."""
        key = self._keys.get(partition)
        if key is None or key not in self._followed:
            return
        self._fresh[key] = None
        if self._request is None:
            return
        if added_bytes:
            self._call()
        else:
            self._answer_within(HIGH_WATERMARK_SECONDS)

    # One request

    def begin(self, request: FetchRequest, context: Context) -> FetchResponse | None:
        self._request, self._context = request, context
        self._is_late = request.max_wait_ms <= 0 or not self._followed
        self._found, self._found_bytes, self._has_news = {}, 0, False
        if self._look():
            return self._response()
        if self._timer is None:
            self._answer_within(request.max_wait_ms / 1000)
        return None

    def _answer_within(self, seconds: float) -> None:
        loop = self._broker.loop
        if self._timer is None or self._timer.due > loop.now() + seconds:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(seconds, self._time_over)

    def _time_over(self) -> None:
        self._timer = None
        self._is_late = True
        self._call()

    def _call(self) -> None:
        """Look again soon, at all that has happened until then."""
        if not self._is_called and self._request is not None:
            self._is_called = True
            self._broker.loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        self._is_called = False
        if self._request is None:
            return
        context = self._context
        try:
            if self._look():
                context.reply(self._response())
        except Exception:
            self._broker.report_bug(context.header)
            context.close("the broker failed")

    def _look(self) -> bool:
        """Look at some of what is fresh; whether there is enough to answer."""
        assert self._request is not None
        request, looked = self._request, 0
        most_bytes = min(request.max_bytes, self._broker.settings.config.fetch_max_bytes)
        quiet: dict[Key, PartitionData] = {}
        for key in list(itertools.islice(self._fresh, AT_ONCE)):
            if self._found_bytes >= most_bytes:
                break
            looked += 1
            del self._fresh[key]
            followed = self._followed[key]
            data = self._partition_data(key, followed, most_bytes - self._found_bytes)
            if data.records is not NO_RECORDS or data.error_code or data.diverging_epoch is not None:
                self._found[key] = data
                self._has_news = self._has_news or data.records is NO_RECORDS
            elif (data.high_watermark, data.log_start_offset) != followed.told:
                quiet[key] = data
        is_ready = self._has_news or self._is_late or self._found_bytes >= max(request.min_bytes, 1)
        if is_ready:
            self._found.update(quiet)
            return True
        if looked == AT_ONCE and self._fresh:
            self._call()
        if quiet:
            self._fresh.update(dict.fromkeys(quiet))
            self._answer_within(HIGH_WATERMARK_SECONDS)
        return False

    def _partition_data(self, key: Key, followed: SessionPartition, budget: int) -> PartitionData:
        broker, asked = self._broker, followed.asked
        partition = broker.topics.find(key)
        if partition is None:
            self._forget(key)  # whoever is told of it asks for it anew
            is_id = isinstance(key[0], bytes)
            return failed(key[1], ErrorCode.UNKNOWN_TOPIC_ID if is_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not partition.is_leader or self.replica not in partition.machine.followers:
            return self._of_another_leader(key[1], partition)
        try:
            partition.check_epoch(asked.current_leader_epoch)
            self._wait_on(partition, key, followed)
            is_held_back = self._throttle.wait_seconds(partition, self.replica) > 0
            read = partition.read_for_replica(
                asked.fetch_offset,
                0 if is_held_back else max(min(asked.partition_max_bytes, budget), 0),
                asked.last_fetched_epoch,
                whole_batch=self._found_bytes == 0 and not is_held_back,
            )
        except OffsetOutOfRange as refusal:
            return failed(key[1], refusal.code, partition.log.log_start_offset)
        except LogError as refusal:
            broker.rot_reports.look(partition.name, refusal)
            return failed(key[1], refusal.code)
        if read.diverging is None:
            refused = self._progress(partition, followed)
            if refused is not None:
                return failed(key[1], refused)
        if read.records is not None:
            self._found_bytes += read.records.size_bytes
            self._throttle.record(partition, self.replica, read.records.size_bytes)
        elif asked.fetch_offset < partition.log.end_offset:
            self._fresh[key] = None  # there is no room for it in this answer
        data = found(key[1], read)
        # As they are now: the follower's position may have moved them.
        data.high_watermark = partition.machine.high_watermark
        data.last_stable_offset = partition.machine.last_stable_offset
        return data

    def _wait_on(self, partition: Partition, key: Key, followed: SessionPartition) -> None:
        if self.is_kept and followed.partition is not partition:
            if followed.partition is not None:
                self._stop_waiting(followed.partition)  # it was deleted, and there is another of its name
            followed.partition = partition
            self._keys[partition] = key
            partition.wait_for_records(self, Bound.LOG_END, self.replica)

    def _progress(self, partition: Partition, followed: SessionPartition) -> ErrorCode | None:
        """Tell the partition how far the follower is; why that does not count, if it does not."""
        now_ms = self._broker.steady_ms()
        if not followed.has_progress:
            partition.follower_waits(self.replica, now_ms, self._broker_epoch)
            return None
        followed.has_progress = False
        asked, epoch = followed.asked, partition.leader_epoch
        return partition.follower_at(
            self.replica, epoch, asked.fetch_offset, now_ms, self._broker_epoch, asked.log_start_offset
        )

    def _of_another_leader(self, index: int, partition: Partition) -> PartitionData:
        """The one who asks is not among the replicas that follow this one; newer ones are told who leads."""
        data = failed(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self._context.version >= FIRST_VERSION_WITH_LEADER:
            data.current_leader = LeaderIdAndEpoch(leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)
        return data

    def _response(self) -> FetchResponse:
        self._request = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        topics: dict[str | bytes, FetchableTopicResponse] = {}
        for key, data in self._found.items():
            answered_topic(topics, key[0]).partitions.append(data)
            followed = self._followed.get(key)
            if followed is not None:
                is_heeded = data.diverging_epoch is None  # or it cuts its log, and does nothing else
                followed.told = (data.high_watermark, data.log_start_offset) if is_heeded else (-1, -1)
        self._found = {}
        session_id = self.session_id if self.is_kept else 0
        return FetchResponse(session_id=session_id, responses=list(topics.values()))
