"""The I/O around a member's machine: sends what it wants sent, and tells it what came of that.

Every event is handled at once and whole; only requests and timers wait, in tasks of the member's own, so that nothing
a user cancels can leave it half done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from ottla.client.errors import ClientError, MalformedAnswer
from ottla.client.group.classic import ClassicMachine
from ottla.client.group.consumer import ConsumerMachine
from ottla.client.group.coordinator import Coordinator
from ottla.client.group.machine import (
    NOTHING,
    Applied,
    Change,
    Closed,
    Effect,
    ErrorTold,
    FindTarget,
    HeartbeatDue,
    MemberMachine,
    MemberSettings,
    NextHeartbeat,
    Offered,
    Polled,
    Retry,
    RetryDue,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Start,
    State,
    TopicsChanged,
)
from ottla.client.group.offsets import Membership, TopicPartition
from ottla.client.group.requests import ClassicRequests, ConsumerRequests, Requests
from ottla.client.group.subscription import Subscription
from ottla.client.network.cluster import Cluster
from ottla.client.network.metadata import Topic
from ottla.client.network.retry import LONGEST_PAUSE_MS

_logger = logging.getLogger("ottla.client")

SHORTEST_WATCH_SECONDS = 1.0
LEAST_WATCH_SECONDS = 0.05
"""However soon what is known of topics is to be old."""


class Member:
    """Runs in the background, from `start` to `close`. `wake` is called when there is something to look at."""

    def __init__(
        self, coordinator: Coordinator, group_id: str, subscription: Subscription, settings: MemberSettings,
        wake: Callable[[], None], is_stuck: Callable[[], bool], *, is_classic: bool,
    ) -> None:  # fmt: skip
        self.group_id = group_id
        self._coordinator = coordinator
        self._wake = wake
        self._is_stuck = is_stuck
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._look_now = asyncio.Event()
        self._pause_seconds = 0.0
        self._trouble: ClientError | None = None
        self._trouble_to_tell: ClientError | None = None
        self._trouble_since = 0.0
        self._machine: MemberMachine
        self._requests: Requests
        if is_classic:
            classic = ClassicMachine(group_id, settings)
            self._machine, self._requests = classic, ClassicRequests(classic, coordinator, subscription)
        else:
            consumer = ConsumerMachine(group_id, settings)
            self._machine, self._requests = consumer, ConsumerRequests(consumer, coordinator, subscription)

    @property
    def cluster(self) -> Cluster:
        return self._coordinator.cluster

    # For the consumer.

    @property
    def membership(self) -> Membership:
        """As whom to commit."""
        return self._machine.membership

    @property
    def is_rejoining(self) -> bool:
        """A new generation is about to be known."""
        return self._machine.is_rejoining

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._machine.owned

    def parting(self, held: frozenset[TopicPartition]) -> Change:
        """What leaving means for what its user believes to have."""
        kept = NOTHING if self._machine.is_out else held & self._machine.owned
        return Change(revoked=kept, lost=held - kept)

    @property
    def has_news(self) -> bool:
        return self._machine.pending is not None or self._machine.error is not None

    def start(self) -> None:
        self._start_task(self._watch())
        self._post(Start())

    @property
    def about_to_lose(self) -> frozenset[TopicPartition]:
        return NOTHING if self._machine.pending is None else self._machine.pending.lost

    def take_pending(self) -> Change | None:
        """A change to be applied: the user is told, and then `apply` is called."""
        return self._machine.take_pending()

    def apply(self, change: Change) -> None:
        for what, partitions in zip(("gave up", "lost", "reads"), change, strict=True):
            if partitions:
                _logger.info("group %s: %s %s", self.group_id, what, ", ".join(map(str, sorted(partitions))))
        self._post(Applied(change))

    def polled(self) -> None:
        """The user is here."""
        self._post(Polled())

    def take_error(self) -> ClientError | None:
        """What the user must be told: why it is no member, or that it could not become one for too long."""
        error = self._machine.error
        if error is not None:
            self._post(ErrorTold())
            return error.again()
        trouble, self._trouble_to_tell = self._trouble_to_tell, None
        return None if trouble is None else trouble.again()

    def resubscribe(self, subscription: Subscription) -> None:
        self._requests.subscription = subscription
        self._requests.topics_changed()
        self._post(TopicsChanged())

    def look_again(self) -> None:
        """A topic has gone: see what there is, soon."""
        self._look_now.set()

    def beat_soon(self) -> None:
        """Learn from the coordinator how things stand."""
        self._set_timer("heartbeat", 0, self._heartbeat_due)

    def begin_to_close(self) -> list[asyncio.Task[None]]:
        """Nothing more is sent; the tasks that are about to end."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._post(Closed())
        return list(self._tasks)

    async def close(self) -> None:
        """Leaves the group, too."""
        was_failed = self._machine.state in (State.FAILED, State.CLOSED)
        await asyncio.gather(*self.begin_to_close(), return_exceptions=True)
        if not was_failed:
            try:
                await self._requests.leave(is_closing=True)
            except ClientError as error:
                _logger.info("group %s could not be left: %s", self.group_id, error)

    # Events and effects.

    def _post(self, event: Any) -> None:
        before = self._machine.state
        effects = self._machine.handle(event)
        if self._machine.state is not before:
            _logger.debug("group %s: %s, now %s", self.group_id, before.name, self._machine.state.name)
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Offered():
                self._wake()
            case NextHeartbeat(after_ms):
                self._set_timer("heartbeat", after_ms / 1000, self._heartbeat_due)
            case Retry(attempt):
                first_seconds = self.cluster.options.retry_pause_ms / 1000
                self._pause_seconds = min(max(2 * self._pause_seconds, first_seconds), LONGEST_PAUSE_MS / 1000)
                self._set_timer("retry", self._pause_seconds, lambda: self._post(RetryDue(attempt)))
            case SendLeave():
                self._start_task(self._leave_for_now())
            case FindTarget(rows):
                self._start_task(self._find_target(rows))
            case SendJoin() | SendSync() | SendHeartbeat():
                self._start_task(self._send(effect))

    async def _send(self, effect: SendJoin | SendSync | SendHeartbeat) -> None:
        try:
            event = await self._requests.send(effect)
        except ClientError as error:
            self._note_trouble(error)
            self._post(self._requests.failure_of(effect, error))
            return
        except Exception as error:  # what other members sent, say, cannot be read
            _logger.exception("group %s: an answer that cannot be used", self.group_id)
            trouble = MalformedAnswer(f"group {self.group_id}: {error!r}")
            self._post(self._requests.failure_of(effect, trouble))
            return
        self._note_answer(self._requests.code_of(event))
        self._post(event)

    def _heartbeat_due(self) -> None:
        self._post(HeartbeatDue(self._is_stuck()))

    async def _leave_for_now(self) -> None:
        """The user is stuck: others shall have the partitions until it is back."""
        _logger.warning(
            "group %s: nothing was asked for within max_poll_interval_ms=%d, so the member leaves",
            self.group_id,
            self._machine.settings.max_poll_interval_ms,
        )
        try:
            await self._requests.leave(is_closing=False)
        except ClientError as error:
            _logger.info("group %s could not be left: %s", self.group_id, error)

    async def _find_target(self, rows: Any) -> None:
        assert isinstance(self._requests, ConsumerRequests)
        pause_seconds = self.cluster.options.retry_pause_ms / 1000
        self._requests.latest_target = rows
        while True:
            target, is_whole = await self._requests.resolve(rows)
            if self._requests.latest_target is not rows:
                return  # a newer one is on its way
            self._post(target)
            if is_whole:
                return
            # A topic that is not known yet is left out until it is.
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, SHORTEST_WATCH_SECONDS)

    # Outages.

    def _note_trouble(self, error: ClientError) -> None:
        if self._trouble is None:
            self._trouble_since = self._loop.time()
            _logger.info("group %s: trouble with its coordinator: %s", self.group_id, error)
            self._set_timer("trouble", self.cluster.options.retry_timeout_ms / 1000, self._tell_trouble)
        self._trouble = error

    def _note_answer(self, code: int) -> None:
        error = self._coordinator.error(code)
        if error is not None and error.is_retriable:
            self._note_trouble(error)
            return
        self._pause_seconds = 0.0
        if self._trouble is not None:
            seconds = self._loop.time() - self._trouble_since
            _logger.info("group %s: its coordinator answers again after %.1f s", self.group_id, seconds)
            self._trouble = self._trouble_to_tell = None
            self._cancel_timer("trouble")

    def _tell_trouble(self) -> None:
        """It goes on trying; the user decides whether to."""
        self._trouble_to_tell = self._trouble
        self._set_timer("trouble", self.cluster.options.retry_timeout_ms / 1000, self._tell_trouble)
        self._wake()

    # Topics that come and go.

    async def _watch(self) -> None:
        """Notice topics that come and go, and partitions that are added."""
        seen: dict[str, Topic] | None = None
        while True:
            pause_seconds = max(self.cluster.options.metadata_age_ms / 1000, LEAST_WATCH_SECONDS)
            self._look_now.clear()
            try:
                found = await self._requests.subscription.find(self.cluster)
            except ClientError as error:
                _logger.debug("group %s: the topics could not be asked for: %s", self.group_id, error)
                pause_seconds = min(pause_seconds, SHORTEST_WATCH_SECONDS)
            except Exception:  # a mistake of ours, which must not be the end of it
                _logger.exception("group %s: the topics could not be asked for", self.group_id)
            else:
                if seen is not None and _shape(found) != _shape(seen):
                    self._requests.topics_changed()
                    self._post(TopicsChanged())
                missing = self._requests.subscription.wanted(found) - set(found)
                if seen is None and missing:
                    _logger.warning("group %s waits for topics that do not exist: %s", self.group_id, sorted(missing))
                if missing or not found:
                    pause_seconds = min(pause_seconds, SHORTEST_WATCH_SECONDS)
                seen = found
            # Never at once: many partitions may notice the same.
            await asyncio.sleep(min(pause_seconds, SHORTEST_WATCH_SECONDS))
            try:
                async with asyncio.timeout(max(pause_seconds - SHORTEST_WATCH_SECONDS, 0)):
                    await self._look_now.wait()
            except TimeoutError:
                pass

    # Tasks and timers.

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _set_timer(self, name: str, seconds: float, function: Callable[[], None]) -> None:
        self._cancel_timer(name)
        self._timers[name] = self._loop.call_later(seconds, function)

    def _cancel_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


def _shape(topics: dict[str, Topic]) -> dict[str, tuple[bytes, int]]:
    return {name: (topic.topic_id, len(topic.partitions)) for name, topic in topics.items()}
