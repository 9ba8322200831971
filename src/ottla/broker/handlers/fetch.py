"""Fetch (1), versions 4 to 18.

Sessions are served; records leave by sendfile. A request that finds less than it wants waits on its partitions until
there is enough, something is wrong, or its time is over, and then reads again. Only consumers are served so far:
there is one replica.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from ottla.broker.fetch_sessions import Fetching, Key, Wanted
from ottla.broker.quotas import CONSUMER_BYTE_RATE
from ottla.log.errors import LogError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop import Timer
    from ottla.broker.slices import Steps
    from ottla.replica.partition import Partition, Read

READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
NO_RECORDS = b""
AT_ONCE = 500  # partitions that are read without letting others in between
FIRST_VERSION_WITH_LEADER = 16


def handle(broker: Broker, request: FetchRequest, context: Context) -> FetchResponse | Steps | None:
    if request.isolation_level not in ISOLATION_LEVELS:
        return FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, responses=[])
    fetching = broker.fetch_sessions.begin(request, context.version, broker.clock_ms())
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
    return None


def _handle_many(fetch: Fetch) -> Steps:
    """The same for so many partitions that others have to be let in between, who may write to them."""
    fetch.park()
    while True:
        fetch.is_looking, fetch.has_moved = True, False
        yield from fetch.look()
        fetch.is_looking = False
        if fetch.is_ready():
            fetch.unpark()
            return fetch.response()
        if not fetch.has_moved:
            return None


class Fetch:
    """One request, which may look several times before it answers."""

    def __init__(self, broker: Broker, request: FetchRequest, fetching: Fetching, context: Context) -> None:
        self._broker = broker
        self._request = request
        self._fetching = fetching
        self._context = context
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._most_bytes = self._limit_bytes()
        self._least_bytes = min(request.min_bytes, self._most_bytes)
        self._is_replica = self._replica_id() >= 0
        self._found: list[tuple[Key, Wanted, PartitionData]] = []
        self._found_bytes = 0
        self._has_news = False
        self._reached: set[Key] = set()
        self._waits_for: list[Partition] = []
        self._timer: Timer | None = None
        self.is_looking = False  # in steps, so that partitions may move meanwhile
        self.has_moved = False  # one of them did
        self._is_late = False

    def _replica_id(self) -> int:
        state = self._request.replica_state
        return self._request.replica_id if state is None else state.replica_id

    def _limit_bytes(self) -> int:
        """Of one answer: never more than a consumer may get in the time that its quota is measured over."""
        most_bytes = min(self._request.max_bytes, self._broker.settings.config.fetch_max_bytes)
        if not self._broker.quotas.are_set:
            return most_bytes
        in_window = self._broker.quotas.most_in_window(CONSUMER_BYTE_RATE, self._context.client_id)
        return most_bytes if in_window is None else min(most_bytes, int(in_window))

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
            yield None

    def is_ready(self) -> bool:
        """Whether there is enough to answer, or nothing to wait for."""
        is_hasty = self._request.max_wait_ms <= 0 or self._is_late or not self._fetching.wanted
        return is_hasty or self._has_news or self._found_bytes >= self._least_bytes

    def _partition_data(self, key: Key, wanted: Wanted, budget: int) -> PartitionData:
        partition = self._find(key)
        if partition is None:
            return self._unknown(key, wanted)
        wanted.was_known = True
        self._reached.add(key)
        asked = wanted.asked
        if self._is_replica:
            return self._of_another_leader(key[1], partition)
        if min(asked.partition_max_bytes, self._request.max_bytes) < 0:
            return _failed(key[1], ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            partition.check_epoch(max(asked.current_leader_epoch, -1))
            read = partition.read(
                asked.fetch_offset,
                max(min(asked.partition_max_bytes, budget), 0),
                committed_only=self._committed_only,
                last_fetched_epoch=asked.last_fetched_epoch,
                whole_batch=self._found_bytes == 0,
            )
        except LogError as refusal:
            return _failed(key[1], ErrorCode(refusal.code))
        if read.records is not None:
            self._found_bytes += read.records.size_bytes
        return _shaped(key[1], read)

    def _find(self, key: Key) -> Partition | None:
        topic, index = key
        topics = self._broker.topics
        return topics.partition(topic, index) if isinstance(topic, str) else topics.partition_by_id(topic, index)

    def _unknown(self, key: Key, wanted: Wanted) -> PartitionData:
        topic, index = key
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # An id that was known once has a name, and that is what is missing now.
        if isinstance(topic, bytes) and topic not in self._broker.topics.by_id and not wanted.was_known:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        data = _failed(index, code)
        if key not in self._reached:
            data.aborted_transactions = []  # null comes from a log that was reached
        return data

    def _of_another_leader(self, index: int, partition: Partition) -> PartitionData:
        """The one who asks is not among the replicas that follow; newer ones are told who leads."""
        data = _failed(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self._context.version >= FIRST_VERSION_WITH_LEADER:
            data.current_leader = LeaderIdAndEpoch(leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)
        return data

    # Waiting

    def park(self) -> None:
        """Wait on all partitions for more."""
        for key in self._fetching.wanted:
            partition = self._find(key)
            if partition is not None:
                partition.wait(self, committed_only=self._committed_only)
                self._waits_for.append(partition)
        self._timer = self._broker.loop.call_later(self._request.max_wait_ms / 1000, self.finish)
        self._context.connection.call_when_closed(self.finish)

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        """A partition that is waited for has grown, or is no more what it was."""
        if self.is_looking:
            self.has_moved = True
            return
        self._found_bytes += added_bytes
        if self._found_bytes >= self._least_bytes:
            self.finish()

    def unpark(self) -> None:
        for partition in self._waits_for:
            partition.stop_waiting(self)
        self._waits_for = []
        if self._timer is not None:
            self._timer.cancel()
        self._context.connection.forget_call(self.finish)

    def finish(self) -> None:
        if self.is_looking and self._context.connection.is_open:
            self.has_moved = True  # its time is over; what it finds is the answer
            self._is_late = True
            return
        self.unpark()
        if not self._context.connection.is_open:
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
        throttle_ms = self._broker.throttle(CONSUMER_BYTE_RATE, self._context, self._found_bytes)
        quotas, client_id = self._broker.quotas, self._context.client_id
        if throttle_ms and not quotas.is_first_use(CONSUMER_BYTE_RATE, client_id, self._found_bytes):
            # Nothing is given now, so nothing was used; the client asks again when its time has come.
            now_ms = self._broker.clock_ms()
            quotas.refund(CONSUMER_BYTE_RATE, client_id, self._found_bytes, now_ms)
            return FetchResponse(throttle_time_ms=throttle_ms, session_id=session_id, responses=[])
        self._broker.metrics.fetched_bytes += self._found_bytes
        # One batch can be more than the quota ever lets through; it goes to who has had nothing for a while.
        return FetchResponse(throttle_time_ms=throttle_ms, session_id=session_id, responses=self._topics())

    def _topics(self) -> list[FetchableTopicResponse]:
        topics: OrderedDict[str | bytes, FetchableTopicResponse] = OrderedDict()
        for key, wanted, data in self._found:
            if self._fetching.is_incremental and not _is_news(wanted, data):
                continue
            wanted.told = None if data.error_code else _told(data)
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchableTopicResponse(partitions=[])
                if isinstance(key[0], str):
                    topic.topic = key[0]
                else:
                    topic.topic_id = key[0]
            topic.partitions.append(data)
            if self._fetching.is_incremental and data.records:
                self._fetching.wanted.move_to_end(key)  # others come first the next time
        return list(topics.values())


def _is_news(wanted: Wanted, data: PartitionData) -> bool:
    has_records = data.records is not None and data.records is not NO_RECORDS
    return bool(has_records or data.error_code or data.diverging_epoch or wanted.told != _told(data))


def _told(data: PartitionData) -> tuple[int, int, int]:
    return data.high_watermark, data.last_stable_offset, data.log_start_offset


def _shaped(index: int, read: Read) -> PartitionData:
    aborted = None
    if read.aborted is not None:
        aborted = [
            AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset) for entry in read.aborted
        ]
    diverging = None
    if read.diverging is not None:
        diverging = EpochEndOffset(epoch=read.diverging[0], end_offset=read.diverging[1])
    return PartitionData(
        partition_index=index,
        error_code=0,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        diverging_epoch=diverging,
        aborted_transactions=aborted,
        records=NO_RECORDS if read.records is None else read.records,
    )


def _failed(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=NO_RECORDS,
    )
