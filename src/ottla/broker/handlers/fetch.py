"""Fetch (1), versions 4 to 18.

Sessions are served; records leave by sendfile. A request that finds less than it wants waits on its partitions until
there is enough, something is wrong, or its time is over, and then reads again. Other replicas are served by
`ottla.broker.replication.serving`.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from ottla.broker.fetch_answers import NO_RECORDS, answered_topic, failed, found
from ottla.broker.fetch_sessions import Fetching, Key, Wanted
from ottla.broker.leaders import HINTED, LeaderHints, nearest_replica
from ottla.broker.quotas.quotas import CONSUMER_BYTE_RATE
from ottla.broker.replication.serving import FIRST_VERSION_WITH_LEADER, replica_of
from ottla.log.errors import LogError
from ottla.replica.errors import NotAvailableYet
from ottla.replica.readers import Bound
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.loop import Timer
    from ottla.broker.loop.slices import Steps
    from ottla.replica.partition import Partition

READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
FIRST_VERSION_WITH_FOLLOWERS = 11
AT_ONCE = 500  # partitions that are read without letting others in between
HELD_FROM = 50  # partitions: what waits for more holds its connection, so that each has one of them, as with Kafka


class FetchState(enum.Enum):
    LOOKING = "looking"  # at its partitions; what is found at once is answered, and it goes nowhere else
    MOVED = "moved"  # one of them did between two steps, or its time is over: it looks again
    WAITING = "waiting"
    WOKEN = "woken"  # a partition has enough: it ends with the round
    ENDED = "ended"  # it looks a last time and answers, or its client is gone


LOOKING: Final = FetchState.LOOKING  # an enum's member takes a while to be looked up
MOVED: Final = FetchState.MOVED
WAITING: Final = FetchState.WAITING
WOKEN: Final = FetchState.WOKEN
ENDED: Final = FetchState.ENDED

TRANSITIONS: Final[dict[FetchState, frozenset[FetchState]]] = {
    LOOKING: frozenset({MOVED, WAITING, ENDED}),
    MOVED: frozenset({LOOKING, ENDED}),
    WAITING: frozenset({WOKEN, ENDED}),
    WOKEN: frozenset({ENDED}),
    ENDED: frozenset(),
}


def handle(broker: Broker, request: FetchRequest, context: Context) -> FetchResponse | Steps | None:
    if request.isolation_level not in ISOLATION_LEVELS:
        return FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, responses=[])
    if replica_of(request) >= 0:
        return broker.replica_sessions.handle(request, context)
    fetching = broker.fetch_sessions.begin(request, context.version, broker.steady_ms())
    if fetching.error:
        return FetchResponse(error_code=fetching.error, responses=[])
    fetch = Fetch(broker, request, fetching, context)
    if len(fetching.wanted) > AT_ONCE:
        return _handle_many(fetch)
    for _ in fetch.look():
        pass
    if fetch.is_ready():
        return fetch.response()
    fetch.park()
    if len(fetching.wanted) > HELD_FROM:
        fetch.hold()
    return None


def _handle_many(fetch: Fetch) -> Steps:
    """The same for very many partitions, in steps. Others may write to the partitions between two steps."""
    yield None
    yield from fetch.parking()
    while True:
        if fetch.state is MOVED:
            fetch.become(LOOKING)
        yield from fetch.look()
        if fetch.is_ready():
            fetch.end()
            return fetch.response()
        if fetch.state is LOOKING:
            fetch.become(WAITING)
            fetch.hold()
            return None


class Fetch:
    """One request, which may look several times before it answers."""

    def __init__(self, broker: Broker, request: FetchRequest, fetching: Fetching, context: Context) -> None:
        self._broker = broker
        self._request = request
        self._fetching = fetching
        self._context = context
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._bound = Bound.LAST_STABLE_OFFSET if self._committed_only else Bound.HIGH_WATERMARK
        self._most_bytes = self._limit_bytes()
        self._least_bytes = min(request.min_bytes, self._most_bytes)
        self._found: list[tuple[Key, Wanted, PartitionData]] = []
        self._found_bytes = 0
        self._has_news = False
        self._reached: set[Key] = set()
        self._waits_for: list[Partition] = []
        self._timer: Timer | None = None
        self.state = LOOKING
        self._is_late = False  # its time is over
        self._is_held = False  # its connection

    def become(self, state: FetchState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state.value} cannot be {state.value} next"
        self.state = state

    def _limit_bytes(self) -> int:
        """Of one answer: never more than a consumer may get in one turn."""
        most_bytes = min(self._request.max_bytes, self._broker.settings.config.fetch_max_bytes)
        if not self._broker.quotas.are_set:
            return most_bytes
        quotas, client_id = self._broker.quotas, self._context.client_id
        in_turn = quotas.most_at_once(CONSUMER_BYTE_RATE, client_id, self._broker.steady_ms())
        return most_bytes if in_turn is None else min(most_bytes, int(in_turn))

    # Looking

    def look(self) -> Steps:
        """Read every partition once, one a step."""
        self._found = []
        self._found_bytes = 0
        self._has_news = False
        for key, wanted in list(self._fetching.wanted.items()):
            data = self._partition_data(key, wanted, self._most_bytes - self._found_bytes)
            self._found.append((key, wanted, data))
            self._has_news |= bool(data.error_code) or data.diverging_epoch is not None
            self._has_news |= data.preferred_read_replica >= 0
            yield None

    def is_ready(self) -> bool:
        """Whether there is enough to answer, or nothing to wait for."""
        is_hasty = self._request.max_wait_ms <= 0 or self._is_late or not self._fetching.wanted
        return is_hasty or self._has_news or self._found_bytes >= self._least_bytes

    def _partition_data(self, key: Key, wanted: Wanted, budget: int) -> PartitionData:
        partition = self._broker.topics.find(key)
        if partition is None:
            return self._unknown(key, wanted)
        wanted.was_known = True
        self._reached.add(key)
        asked = wanted.asked
        if min(asked.partition_max_bytes, self._request.max_bytes) < 0:
            return failed(key[1], ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            partition.check_epoch(max(asked.current_leader_epoch, -1))
            if not partition.is_leader:
                self._check_follower(partition, asked.fetch_offset)
            elif self._request.rack_id:
                nearest = nearest_replica(self._broker, partition, self._request.rack_id, asked.fetch_offset)
                if nearest >= 0:
                    return self._elsewhere(key[1], partition, nearest)
            read = partition.read(
                asked.fetch_offset,
                max(min(asked.partition_max_bytes, budget), 0),
                committed_only=self._committed_only,
                last_fetched_epoch=asked.last_fetched_epoch,
                whole_batch=self._found_bytes == 0,
            )
        except LogError as refusal:
            self._broker.rot_reports.look(partition.name, refusal)
            return failed(key[1], refusal.code)
        if read.records is not None:
            self._found_bytes += read.records.size_bytes
            self._has_news |= read.is_cut  # or it would wait for what it does not get now
        return found(key[1], read)

    def _check_follower(self, partition: Partition, offset: int) -> None:
        """A follower serves consumers that know of it, as far as it knows what is committed (KIP-392)."""
        if self._context.version < FIRST_VERSION_WITH_FOLLOWERS or not partition.is_follower:
            partition.check_leader()
        if offset > partition.log.end_offset:
            raise NotAvailableYet(f"{partition.name} has not come to offset {offset} here")

    def _elsewhere(self, index: int, partition: Partition, replica: int) -> PartitionData:
        """Another replica is nearer."""
        machine = partition.machine
        return PartitionData(
            partition_index=index,
            error_code=0,
            high_watermark=machine.high_watermark,
            last_stable_offset=machine.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=[] if self._committed_only else None,
            preferred_read_replica=replica,
            records=NO_RECORDS,
        )

    def _unknown(self, key: Key, wanted: Wanted) -> PartitionData:
        topic, index = key
        code = self._broker.topics.missing_code(topic, index)
        if code is ErrorCode.UNKNOWN_TOPIC_ID and wanted.was_known:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # the id had a name, and that is what is missing now
        data = failed(index, code)
        if key not in self._reached and code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            data.aborted_transactions = []  # null comes from a log that was reached, or is elsewhere
        return data

    # Waiting

    def park(self) -> None:
        """Wait on all partitions for more."""
        for _ in self.parking():
            pass
        self.become(WAITING)

    def parking(self) -> Steps:
        """The same in steps. Who closes the connection between two of them is waited for no more."""
        self._timer = self._broker.loop.call_later(self._request.max_wait_ms / 1000, self.finish)
        self._context.connection.call_when_closed(self.finish)
        for number, key in enumerate(list(self._fetching.wanted), start=1):
            partition = self._broker.topics.find(key)
            if partition is not None:
                partition.wait_for_records(self, self._bound)
                self._waits_for.append(partition)
            if not number % AT_ONCE:
                yield None

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        """A partition that is waited for has grown, or is no more what it was."""
        state = self.state
        if state is WAITING:
            self._found_bytes += added_bytes
            if self._found_bytes >= self._least_bytes:
                self.become(WOKEN)
                self._broker.woken.add(self)
        elif state is LOOKING:
            self.become(MOVED)

    def hold(self) -> None:
        """Handle no more requests of its connection while it waits: each may hold megabytes of what it asks for."""
        self._is_held = True
        self._context.connection.hold()

    def end(self) -> None:
        """Wait no more."""
        self.become(ENDED)
        if self._is_held:
            self._is_held = False
            self._context.connection.release()
        for partition in self._waits_for:
            partition.stop_waiting(self)
        self._waits_for = []
        if self._timer is not None:
            self._timer.cancel()
        self._context.connection.forget_call(self.finish)

    def finish(self) -> None:
        """Its time is over, its client is gone, or it was woken: two of these may come in one round."""
        state, is_open = self.state, self._context.connection.is_open
        if state in (LOOKING, MOVED) and is_open:
            self._is_late = True  # what it finds is the answer
            if state is LOOKING:
                self.become(MOVED)
            return
        if state is ENDED:
            return
        self.end()
        if not is_open:
            return
        if len(self._fetching.wanted) > AT_ONCE:
            self._broker.request_slices.start(self.look(), self._looked)
            return
        try:
            for _ in self.look():
                pass
            self._looked(None, None)
        except Exception as failure:
            self._looked(None, failure)

    def _looked(self, _result: object, failure: Exception | None) -> None:
        """Answer. The caller may be whoever wrote to a partition, and must not pay for what goes wrong."""
        try:
            if failure is not None:
                raise failure  # noqa: TRY301
            if self._context.connection.is_open:
                self._context.reply(self.response())
        except Exception:
            self._broker.report_bug(self._context.header)
            self._context.close("the broker failed")

    # Answering

    def response(self) -> FetchResponse:
        session_id = self._fetching.session_id
        turn = self._broker.take_turn(CONSUMER_BYTE_RATE, self._context, self._found_bytes)
        if not turn.is_given:  # the client asks again when its time has come
            return FetchResponse(throttle_time_ms=turn.throttle_ms, session_id=session_id, responses=[])
        self._broker.metrics.fetched_bytes += self._found_bytes
        response = FetchResponse(throttle_time_ms=turn.throttle_ms, session_id=session_id, responses=self._topics())
        if self._has_news and self._context.version >= FIRST_VERSION_WITH_LEADER:
            self._hint(response)
        return response

    def _hint(self, response: FetchResponse) -> None:
        """Tell who leads what does not lead here."""
        hints = LeaderHints(self._broker, self._context.listener)
        for topic in response.responses:
            for data in topic.partitions:
                if data.error_code in HINTED:
                    leader = hints.leader_of(topic.topic or topic.topic_id, data.partition_index)
                    if leader is not None:
                        data.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
        response.node_endpoints = [
            NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in hints.endpoints()
        ]

    def _topics(self) -> list[FetchableTopicResponse]:
        topics: OrderedDict[str | bytes, FetchableTopicResponse] = OrderedDict()
        for key, wanted, data in self._found:
            if self._fetching.is_incremental and not _is_news(wanted, data):
                continue
            wanted.told = None if data.error_code else _told(data)
            answered_topic(topics, key[0]).partitions.append(data)
            # Another request of this session may have come meanwhile, and have it forget the partition.
            if self._fetching.is_incremental and data.records and key in self._fetching.wanted:
                self._fetching.wanted.move_to_end(key)  # others come first the next time
        return list(topics.values())


def _is_news(wanted: Wanted, data: PartitionData) -> bool:
    has_records = data.records is not None and data.records is not NO_RECORDS
    is_elsewhere = data.preferred_read_replica >= 0
    return bool(has_records or data.error_code or data.diverging_epoch or is_elsewhere or wanted.told != _told(data))


def _told(data: PartitionData) -> tuple[int, int, int]:
    return data.high_watermark, data.last_stable_offset, data.log_start_offset
