"""Copies from one other broker all partitions that this one follows there.

One request is under way at a time. It names the partitions whose position has changed; the session with the leader
(KIP-227) remembers the others, so that thousands of quiet partitions cost nothing. A partition that has to wait is
taken out of the session until its time comes.

To ask for what follows a record is to say that it is kept. Where the durability asks for the disk, the next request
therefore waits for the sync of what the last answer gave, all partitions at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, cast

from ottla.broker.events import Events
from ottla.broker.fetch_sessions import INITIAL_EPOCH, LARGEST_EPOCH, NO_SESSION
from ottla.broker.loop.loop import Loop, Timer
from ottla.broker.loop.slices import Slices, Steps
from ottla.broker.network.peer import Peer, PeerFailure
from ottla.broker.replication.copied_partition import CopiedPartition, Key
from ottla.log.errors import LogError
from ottla.replica.follower import EPOCH_ERRORS, Answer, BackOff, Copy, RestartAt, State, Truncate
from ottla.replica.partition import Partition
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.wire.parts import Buffer
from ottla.wire.schema import Response

events = Events("ottla.broker")

VERSION = 17
MOST_NAMED = 1000  # partitions in one request
MOST_THROTTLE_SECONDS = 0.5  # then it is looked whether more is allowed now
LASTING_ERRORS = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR})
LEAST_BACKOFF_SECONDS = 0.02  # twice as long each time


class FetchSettings(NamedTuple):
    """The broker's replica.fetch settings."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    partition_max_bytes: int = 1 << 20
    max_bytes: int = 10 << 20
    most_backoff_ms: int = 1000
    timeout_ms: int = 30_000


class Fetcher:
    def __init__(
        self,
        loop: Loop,
        leader_id: int,
        node_id: int,
        *,
        peer: Callable[[], Peer],
        broker_epoch: Callable[[], int],
        settings: Callable[[], FetchSettings],
        may_fetch: Callable[[Partition], float] = lambda _partition: 0.0,
        fetched: Callable[[Partition, int], None] = lambda _partition, _size_bytes: None,
    ) -> None:
        """`may_fetch`: in how many seconds a partition may be asked for; `fetched`: is told of what came."""
        self.leader_id = leader_id
        self._loop = loop
        self._node_id = node_id
        self._peer = peer
        self._broker_epoch = broker_epoch
        self._told_broker_epoch = -1
        self._settings = settings
        self._may_fetch = may_fetch
        self._fetched = fetched
        self._followed: dict[Key, CopiedPartition] = {}
        self._changed: dict[Key, None] = {}  # to be named in the next request
        self._forgotten: dict[Key, None] = {}  # to be taken out of the session
        self._session_id, self._session_epoch = NO_SESSION, INITIAL_EPOCH
        self._in_session_count = 0  # of the partitions
        self._is_asking = False
        self._slices = Slices(loop)  # in which answers are taken
        self._syncing: dict[CopiedPartition, None] = {}  # whose records are on their way to the disk
        self._failures = 0  # of requests, since the last answer
        self._timer: Timer | None = None  # of the pause after one
        self._is_called = False
        self._is_stopped = False

    def __len__(self) -> int:
        return len(self._followed)

    # Partitions

    def follow(self, partition: Partition) -> None:
        """Copy a partition, in the epoch that it is in now."""
        self.leave(partition)
        followed = CopiedPartition(partition)
        self._followed[followed.key] = followed
        self._changed[followed.key] = None
        self._call()

    def leave(self, partition: Partition) -> None:
        followed = self._followed.pop((partition.topic_id, partition.index), None)
        if followed is not None:
            followed.follower.stop()
            if followed.timer is not None:
                followed.timer.cancel()
            self._syncing.pop(followed, None)
            self._take_out(followed)
            self._call()

    def _take_out(self, followed: CopiedPartition) -> None:
        self._changed.pop(followed.key, None)
        if followed.is_in_session:
            followed.is_in_session = False
            self._in_session_count -= 1
            self._forgotten[followed.key] = None
            self._call()

    def stop(self) -> None:
        self._is_stopped = True
        self._slices.cancel_all()
        if self._timer is not None:
            self._timer.cancel()
        for followed in list(self._followed.values()):
            self.leave(followed.partition)

    # Asking

    def _call(self) -> None:
        """Ask soon, with all that happens until then."""
        if not self._is_called and not self._is_waiting:
            self._is_called = True
            self._loop.call_soon(self._ask)

    @property
    def _is_waiting(self) -> bool:
        """Whether a call comes when it is time to ask."""
        return self._is_asking or bool(self._syncing) or self._timer is not None or self._is_stopped

    def _ask(self) -> None:
        self._is_called = False
        if self._is_waiting:
            return
        self._begin_session()
        self._sync()
        if self._syncing:
            return
        request = self._request()
        if not self._in_session_count:
            self._session_epoch = INITIAL_EPOCH  # all of them wait for something; then a new session begins
            return
        self._is_asking = True
        settings = self._settings()
        seconds = (settings.timeout_ms + settings.max_wait_ms) / 1000
        self._peer().send(request, VERSION, self._answered, seconds)

    def _begin_session(self) -> None:
        """Tell all partitions where the leader remembers none, or not as they are."""
        if self._told_broker_epoch != self._broker_epoch():
            # Leaders keep it with the position of each partition, and quiet ones are named only in a new session.
            self._told_broker_epoch = self._broker_epoch()
            self._session_epoch = INITIAL_EPOCH
        if self._session_epoch == INITIAL_EPOCH:
            self._forgotten.clear()
            for followed in self._followed.values():
                followed.is_in_session = False
            self._in_session_count = 0
            self._changed.update(dict.fromkeys(self._followed))

    def _sync(self) -> None:
        """Have on the disk, where that is asked for, what the next request tells of."""
        for key in self._changed:
            followed = self._followed[key]
            if followed.follower.may_fetch and followed.timer is None and not followed.partition.is_written:
                self._syncing[followed] = None
        for followed in list(self._syncing):
            followed.partition.when_written(partial(self._synced, followed))

    def _synced(self, followed: CopiedPartition, failure: LogError | None) -> None:
        if followed not in self._syncing:
            return  # it was left meanwhile
        del self._syncing[followed]
        if failure is not None:
            self._changed.pop(followed.key, None)
            self._not_done(followed, failure)
        self._call()

    def _request(self) -> FetchRequest:
        settings = self._settings()
        named = [self._followed[key] for key in self._taken()]
        self._in_session_count += sum(not followed.is_in_session for followed in named)
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=self._told_broker_epoch),
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=_topics(named, settings.partition_max_bytes),
            forgotten_topics_data=_forgotten(self._forgotten),
        )
        self._forgotten = {}
        return request

    def _taken(self) -> list[Key]:
        """The partitions to name now: some of those that may be asked for. The others stay for later."""
        taken: list[Key] = []
        for key in list(self._changed):
            followed = self._followed[key]
            if not followed.follower.may_fetch or followed.timer is not None:
                del self._changed[key]
                continue
            if followed.must_copy_again(self._node_id):
                del self._changed[key]
                self._copy_again(followed)
                continue
            seconds = self._may_fetch(followed.partition)
            if seconds > 0:
                self._pause(followed, min(seconds, MOST_THROTTLE_SECONDS))
                continue
            del self._changed[key]
            self._forgotten.pop(key, None)
            taken.append(key)
            if len(taken) == MOST_NAMED:
                break
        return taken

    def _pause(self, followed: CopiedPartition, seconds: float) -> None:
        """Leave a partition alone for a while."""
        self._take_out(followed)
        if followed.timer is None:
            followed.timer = self._loop.call_later(seconds, partial(self._resume, followed))

    def _resume(self, followed: CopiedPartition) -> None:
        followed.timer = None
        followed.follower.resume()
        if self._followed.get(followed.key) is followed:
            self._changed[followed.key] = None
            self._call()

    # Answers

    def _answered(self, answer: Response | PeerFailure) -> None:
        self._is_asking = False
        if self._is_stopped:
            return
        if isinstance(answer, PeerFailure):
            self._failed(str(answer))
            return
        response = cast("FetchResponse", answer)
        if response.error_code:
            self._failed(ErrorCode(response.error_code).name, is_session=True)
            return
        self._failures = 0
        self._session_id = response.session_id
        self._session_epoch = _next_epoch(self._session_epoch) if response.session_id else INITIAL_EPOCH
        self._is_asking = True  # until all that came is taken
        self._slices.run(self._taking(response), self._took)

    def _taking(self, response: FetchResponse) -> Steps:
        """A partition a step: the first record of each makes a folder."""
        for topic in response.responses:
            for data in topic.partitions:
                followed = self._followed.get((topic.topic_id, data.partition_index))
                if followed is not None and followed.is_in_session:
                    yield from self._safely(followed, self._take(followed, data))
                    yield None

    def _took(self, _result: object, _failure: Exception | None) -> None:
        self._is_asking = False
        self._call()

    def _failed(self, reason: str, *, is_session: bool = False) -> None:
        """There is no answer, and nobody knows what the leader remembers: tell it all again, after a pause."""
        self._session_epoch = INITIAL_EPOCH
        self._failures += 1
        if self._failures == 1 and not is_session:
            events.debug("a leader does not answer", leader=self.leader_id, reason=reason)
        seconds = _backoff_seconds(self._failures, self._settings().most_backoff_ms)
        self._timer = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        self._call()

    def _safely(self, followed: CopiedPartition, steps: Steps) -> Steps:
        """A mistake with one partition must not keep the others from being copied."""
        try:
            yield from steps
        except Exception:
            events.failure("the copying of a partition failed", partition=followed.partition.name)
            if followed.follower.state in (State.FETCHING, State.TRUNCATING):
                followed.follower.failed_for_now()
            if followed.follower.state is not State.STOPPED:
                self._back_off(followed, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _take(self, followed: CopiedPartition, data: PartitionData) -> Steps:
        """What the leader says of one partition."""
        partition, follower = followed.partition, followed.follower
        if partition.leader_epoch != follower.leader_epoch:
            return
        diverging = data.diverging_epoch
        answer = Answer(
            ErrorCode(data.error_code),
            data.high_watermark,
            data.log_start_offset,
            cast("Buffer | None", data.records),
            None if diverging is None else (diverging.epoch, diverging.end_offset),
        )
        effect = follower.answered(followed.asked_offset, answer, partition.log.end_offset, partition.log.epochs)
        if isinstance(effect, BackOff):
            if effect.error in LASTING_ERRORS:
                self._tell(followed, f"its leader, broker {self.leader_id}, answers {effect.error.name}")
            self._back_off(followed, effect.error)
        elif effect is not None:
            yield from self._bringing_about(followed, effect)

    def _bringing_about(self, followed: CopiedPartition, effect: Copy | Truncate | RestartAt) -> Steps:
        try:
            if isinstance(effect, Copy):
                if (yield from followed.copying(effect, self._loop.system.clock_ms)):
                    self._fetched(followed.partition, len(effect.records))
                    followed.retries = 0
                    if followed.has_moved:
                        self._changed[followed.key] = None
            elif (yield from followed.cutting(effect, self._loop.system.clock_ms)):
                followed.retries = 0
                self._changed[followed.key] = None
        except LogError as failure:
            if followed.follower.state is not State.STOPPED:
                self._not_done(followed, failure)

    def _copy_again(self, followed: CopiedPartition) -> None:
        partition = followed.partition
        assert partition.log.hole is not None
        offset = partition.log.hole.first_offset
        events.info("records that have rotted are copied again", partition=partition.name, offset=offset)
        steps = self._bringing_about(followed, followed.follower.lacks(offset))
        self._slices.start(self._safely(followed, steps), lambda _result, _failure: self._call())

    def _not_done(self, followed: CopiedPartition, failure: LogError) -> None:
        partition = followed.partition
        self._tell(followed, str(failure))
        if partition.log.failure is not None:
            followed.follower.failed()
            self._take_out(followed)
            return
        followed.follower.failed_for_now()
        self._back_off(followed, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _tell(self, followed: CopiedPartition, reason: str) -> None:
        """At the first failure, the second, the fourth, and so on: it may last until somebody mends a disk."""
        retries = followed.retries + 1
        if not retries & (retries - 1):
            events.warning("a partition cannot be copied", partition=followed.partition.name, reason=reason)

    def _back_off(self, followed: CopiedPartition, error: ErrorCode) -> None:
        """Ask again later: soon where the two brokers only know of different epochs, which the next change mends."""
        followed.retries += 1
        most_ms = self._settings().most_backoff_ms
        seconds = _backoff_seconds(followed.retries, most_ms) if error in EPOCH_ERRORS else most_ms / 1000
        self._pause(followed, seconds)

    def is_fetching(self, partition: Partition) -> bool:
        followed = self._followed.get((partition.topic_id, partition.index))
        return followed is not None and followed.follower.state is State.FETCHING


def _next_epoch(epoch: int) -> int:
    return 1 if epoch == LARGEST_EPOCH else epoch + 1


def _backoff_seconds(failures: int, most_ms: int) -> float:
    return min(LEAST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 20), most_ms / 1000)


def _topics(named: Iterable[CopiedPartition], max_bytes: int) -> list[FetchTopic]:
    topics: dict[bytes, FetchTopic] = {}
    for followed in named:
        partition = followed.partition
        followed.is_in_session = True
        offset, last_fetched_epoch = partition.fetch_position
        followed.asked_offset = offset
        followed.asked_start_offset = partition.log.log_start_offset
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = topics[partition.topic_id] = FetchTopic(topic_id=partition.topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=partition.index,
                current_leader_epoch=followed.follower.leader_epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_fetched_epoch,
                log_start_offset=partition.log.log_start_offset,
                partition_max_bytes=max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in keys:
        if topic_id not in topics:
            topics[topic_id] = ForgottenTopic(topic_id=topic_id, partitions=[])
        topics[topic_id].partitions.append(index)
    return list(topics.values())
