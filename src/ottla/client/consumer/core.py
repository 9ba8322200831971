"""What both faces of the consumer share: the positions, and the background work that moves them.

Everything here belongs to the event loop. `next` is the one call that waits for records. The state only changes
between awaits, so it is whole whenever a user cancels a call. What was begun then is done again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from ottla.client.consumer.assignment import Assignment, AssignmentTold
from ottla.client.consumer.commit_ahead import CommitAhead
from ottla.client.consumer.core_state import TRANSITIONS, CoreState
from ottla.client.consumer.fetcher import Fetcher, FetcherTold
from ottla.client.consumer.hand_out import HandOut
from ottla.client.consumer.options import CoreOptions
from ottla.client.consumer.partition_position import NOWHERE, Entry, PartitionPosition
from ottla.client.consumer.start_offsets import StartOffsets
from ottla.client.consumer.statistics import ConsumerStatistics, Counters
from ottla.client.errors import ClientError, DeserializationFailed
from ottla.client.group.committer import Committer
from ottla.client.group.coordinator import Coordinator, CoordinatorKind
from ottla.client.group.machine import Change
from ottla.client.group.offsets import (
    GroupOffsets,
    Membership,
    Offset,
    TopicPartition,
    as_offsets,
    as_place,
    as_places,
)
from ottla.client.group.subscription import Subscription
from ottla.client.network.cluster import ClientOptions, Cluster
from ottla.client.network.connection import Connection
from ottla.client.offsets import Position, find_offsets
from ottla.records import checksum

_logger = logging.getLogger("ottla.client")

DEFAULT_WAIT_MS = 500


class ConsumerCore:
    def __init__(
        self, bootstrap: str | Sequence[str], client_options: ClientOptions, subscription: Subscription | None,
        options: CoreOptions,
    ) -> None:  # fmt: skip
        if subscription is not None and options.group is None:
            raise ValueError("to subscribe is to be in a group: give its name, or assign partitions")
        self._cluster = Cluster(bootstrap, client_options)
        self._subscription = subscription
        self._options = options
        self._out: HandOut | None = None
        self._out_turns = count(1)
        self._marks: tuple[int, ...] = ()
        self._tasks: list[asyncio.Task[None]] = []
        self._state = CoreState.NEW
        self._opening = asyncio.Lock()
        self._is_polling = self._is_handling = self._is_stopping = False
        self._polled_at = 0.0
        self.counters = Counters()

    # From the beginning to the end.

    def _become(self, state: CoreState) -> None:
        assert state in TRANSITIONS[self._state], f"a consumer that is {self._state.value} cannot be {state.value} next"
        self._state = state

    @property
    def _is_open(self) -> bool:
        return self._state is CoreState.OPEN

    @property
    def _is_closed(self) -> bool:
        return self._state in (CoreState.UNUSED, CoreState.CLOSED)

    @property
    def _was_opened(self) -> bool:
        """Whether it has what `_begin` makes."""
        return self._state in (CoreState.OPEN, CoreState.CLOSED)

    async def open(self) -> None:
        async with self._opening:
            if self._is_closed:
                raise RuntimeError("this consumer is closed")
            if self._is_open:
                return
            await self._cluster.open()
            if self._is_closed:  # meanwhile
                await self._cluster.close()
                raise RuntimeError("this consumer is closed")
            self._begin()

    def _begin(self) -> None:
        checksum.prepare()
        options = self._options
        self._loop = asyncio.get_running_loop()
        self._polled_at = self._loop.time()
        self._woken = asyncio.Event()
        told = FetcherTold(self._woken.set, self._topic_gone, self._wake_all)
        self._fetcher = Fetcher(
            self._cluster, options.isolation, options.limits, options.fetch_wait_ms, options.buffer_bytes, told,
            self.counters, goes_back=options.start is not None,
        )  # fmt: skip
        self.positions = self._fetcher.positions
        group = options.group
        self._coordinator = None if group is None else Coordinator(self._cluster, CoordinatorKind.GROUP, group)
        self._committer = Committer(self._coordinator, self.positions, self, self.counters)
        self._ahead = CommitAhead(self._committer, self.positions)
        self._starts = StartOffsets(
            self._cluster, self.positions, self._committer, options.start, options.isolation, self._located,
            self._topic_gone,
        )  # fmt: skip
        self._assignment = Assignment(
            self._coordinator, self.positions, self._committer, self._starts, options,
            AssignmentTold(self._group_has_news, self._is_stuck, self._raise_errors), self.counters,
        )  # fmt: skip
        self._start_task(self._fetcher.run())
        self._start_task(self._starts.run())
        if options.auto_commit_ms and group is not None:
            self._start_task(self._committer.run(options.auto_commit_ms))
        self._become(CoreState.OPEN)
        if self._subscription is not None:
            self._assignment.join(self._subscription)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._woken.set())  # it ends by a bug only, which the user is told
        self._tasks.append(task)

    def now(self) -> float:
        self._check_open()
        return self._loop.time()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("this consumer is closed")
        if not self._is_open:
            raise RuntimeError("this consumer is not open: use it in a `with` block, or call open() first")

    def stop_handing_out(self, *, is_processed: bool) -> None:
        """Before it is closed. What is in hand is finished, or is handed back."""
        if not self._is_open:
            return
        if not is_processed:
            self.hand_back()
        self._settle()

    async def close(self, timeout_seconds: float) -> None:
        """Commits what is finished and leaves the group, as far as there is time for that."""
        if self._is_closed:
            return
        self._become(CoreState.CLOSED if self._is_open else CoreState.UNUSED)
        try:
            if self._was_opened:
                self._ahead.drop()
                async with asyncio.timeout(timeout_seconds):
                    await self._assignment.close()
        except TimeoutError:
            _logger.warning("group %s: no time to commit the last offsets and to leave", self._options.group)
        finally:
            await self._release()

    async def _release(self) -> None:
        """Everything ends at once; what follows, until it has, may be cancelled."""
        if self._was_opened:
            self._woken.set()  # whoever still waits for records learns that it is closed
        ending, connections = self.drop()
        await asyncio.gather(*ending, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in connections))

    def drop(self) -> tuple[list[asyncio.Task[None]], list[Connection]]:
        """Nobody uses it any more: what is about to end."""
        ending = list(self._tasks)
        for task in ending:
            task.cancel()
        if self._was_opened:
            ending += self._ahead.begin_to_close() + self._assignment.begin_to_close()
        return ending, self._cluster.begin_to_close()

    # What to read.

    async def subscribe(self, subscription: Subscription) -> None:
        self._check_open()
        await self._assignment.subscribe(subscription)

    async def unsubscribe(self) -> None:
        self._check_open()
        self.hand_back()  # what is in hand is nobody's word that it is processed
        self._settle()
        self._ahead.drop()
        await self._assignment.leave()

    @property
    def is_of_group(self) -> bool:
        """Whether a group says what is read."""
        return self._is_open and self._assignment.is_of_group

    def part(self) -> Change:
        """What the user is to be told before the group is left, once."""
        return self._assignment.part() if self._is_open else Change()

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        await self.unsubscribe()
        places = {one: PartitionPosition(one) for one in partitions}
        self.positions.update(places)
        await self._starts.until_known(places.values())

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.positions) if self._is_open else frozenset()

    def pause(self, *partitions: TopicPartition) -> None:
        for one in partitions:
            self.place(one).pause()
        self._interrupt()

    def resume(self, *partitions: TopicPartition) -> Callable[[], None]:
        """At once, as `pause`: what is said last counts. To be called on the event loop: they are asked for again."""
        for one in partitions:
            self.place(one).is_paused = False
        return self._wake_all

    async def seek(self, partition: TopicPartition, position: Position) -> None:
        partition = self.place(partition).topic_partition
        found = await find_offsets(
            self._cluster, partition.topic, [partition.partition], position, self._options.isolation
        )
        self.place(partition).seek(found[partition.partition])
        self._interrupt()
        self._wake_all()

    def place(self, partition: TopicPartition) -> PartitionPosition:
        self._check_open()
        named = as_place(partition)
        place = self.positions.get(named)
        if place is None:
            raise ValueError(f"{named} is not assigned to this consumer")
        return place

    def lag(self) -> dict[TopicPartition, int]:
        self._check_open()
        return {
            one: max(0, place.high_watermark - place.position)
            for one, place in list(self.positions.items())
            if place.high_watermark != NOWHERE and place.position != NOWHERE
        }

    def statistics(self) -> ConsumerStatistics:
        counted = self.counters
        return ConsumerStatistics(
            counted.fetches, counted.fetched_bytes, counted.polls, counted.commits, counted.failed_commits,
            counted.rebalances, counted.errors, len(self.assignment),
            self._fetcher.held_bytes if self._is_open else 0, sum(self.lag().values()) if self._is_open else 0,
        )  # fmt: skip

    # Handing out.

    async def next(self, deadline: float | None) -> HandOut | Change:
        """What is to be handed out, or a change that its user must be told of before the next call.

        All that was handed out before is finished. Empty when nothing came before the deadline, by the time of the
        event loop; None waits for ever.
        """
        self._check_open()
        if self._is_polling:
            raise RuntimeError("this consumer is being read elsewhere: one loop at a time")
        self._settle()
        self._is_polling = True
        self.counters.polls += 1
        try:
            while True:
                self._check_open()
                self._woken.clear()
                if self._is_stopping:
                    self._is_stopping = False
                    return self._hand_out([], is_stopped=True)
                step = await self._step(deadline)
                if step is not None:
                    return step
                try:
                    async with asyncio.timeout_at(deadline):
                        await self._woken.wait()
                except TimeoutError:
                    return self._hand_out([], is_last=True)
        except ClientError:
            self.counters.errors += 1
            raise
        finally:
            self._is_polling = False
            self._polled_at = self._loop.time()

    def _settle(self) -> None:
        """The user asks for more: what it has is finished, and what it did not get comes next."""
        out, self._out = self._out, None
        if out is not None:
            out.is_interrupted = True
            for entry in out.entries:
                entry.place.settle()
            self._fetcher.wake()

    async def _step(self, deadline: float | None) -> HandOut | Change | None:
        if self._ahead.is_pending:
            # It is handed out before anything is given up: who has the partition then begins behind it.
            entries = await self._ahead.committed(deadline)
            if entries or self._ahead.is_pending:
                return self._hand_out(entries) if entries else None
        self._assignment.finish_told()
        if rest := self._ahead.rest_of(self._assignment.about_to_lose):
            return self._hand_out(rest)
        may_hand_out, change = await self._assignment.step(deadline)
        if not may_hand_out:
            return change
        self._check_open()  # meanwhile somebody may have closed it
        entries = self._ready()
        if self._options.delivery == "at-most-once":
            self._ahead.begin(entries)
            entries = await self._ahead.committed(deadline)
        return self._hand_out(entries) if entries else None

    def _ready(self) -> list[Entry]:
        """What can be handed out, of all partitions: half of the buffer at most, so that the other half can be filled
        meanwhile. A partition that had no turn comes first the next time."""
        found = [entry for place in self.positions.values() if (entry := place.peek()) is not None]
        most_bytes = self._options.buffer_bytes // 2
        if sum(entry.data.size_bytes for entry in found) <= most_bytes:
            return found
        found.sort(key=lambda entry: entry.place.out_turn)
        taken, taken_bytes = found[:1], found[0].data.size_bytes
        for entry in found[1:]:
            taken_bytes += entry.data.size_bytes
            if taken_bytes > most_bytes:
                break
            taken.append(entry)
        return taken

    def _hand_out(self, entries: list[Entry], *, is_last: bool = False, is_stopped: bool = False) -> HandOut:
        for entry in entries:
            entry.place.hand_out(entry)
            entry.place.out_turn = next(self._out_turns)
        self._out = HandOut(entries, self._options.deserializers, is_last=is_last, is_stopped=is_stopped)
        self._marks = ()
        self._fetcher.wake()
        return self._out

    def _raise_errors(self) -> None:
        error = self._assignment.take_error()
        if error is None:
            error, self._fetcher.error = self._fetcher.error, None
        if error is None:
            error, self._starts.error = self._starts.error, None
        if error is not None:
            raise error.again()
        for task in self._tasks:
            if task.cancelled():
                raise RuntimeError("the event loop that this consumer was opened on has ended")
            if task.done():
                task.result()

    def stop(self) -> None:
        """Also before it is open: whoever wants the program to end does not look for that."""
        self._is_stopping = True
        self._interrupt()
        if self._is_open:
            self._woken.set()

    def _interrupt(self) -> None:
        out = self._out
        if out is not None:
            out.is_interrupted = True

    def _located(self) -> None:
        self._fetcher.wake()
        self._woken.set()

    def _wake_all(self) -> None:
        self._fetcher.wake()
        self._starts.wake()
        self._woken.set()

    # What the user did not get done.

    def hand_back(self) -> None:
        """What is in hand was not processed: it comes again, but at most once. From the thread that hands out."""
        out = self._out
        if out is not None and self._options.delivery != "at-most-once":
            for entry in out.entries:
                entry.place.hand_back()

    def skip(self, failed: DeserializationFailed) -> None:
        """Go on behind a record that cannot be read."""
        place = self.positions.get(TopicPartition(failed.topic or "", failed.partition or 0))
        if place is not None and place.position == failed.offset:
            place.finished = place.position = failed.offset + 1

    def start_rewinding(self) -> None:
        """Back to what is committed, as soon as that is known. From any other thread than the event loop's."""
        self._interrupt()  # at once: nothing more of what is in hand
        self._loop.call_soon_threadsafe(self.rewind_all)

    def learn_standing(self) -> None:
        """A commit was refused: it may be no member any more. From any thread."""
        self._loop.call_soon_threadsafe(self._assignment.learn_standing)

    def rewind_all(self) -> None:
        for place in self.positions.values():
            place.rewind()
        self._interrupt()
        self._wake_all()

    async def rewind(self) -> None:
        self._check_open()
        if self._options.delivery == "at-most-once" and self._committer.has_group:
            self._settle()  # what was handed out does not come again, and what comes next was not
            return
        self.rewind_all()
        await self._starts.until_known(list(self.positions.values()))

    @contextmanager
    def handling(self) -> Iterator[None]:
        """However long it takes, it is not stuck."""
        self._is_handling = True
        try:
            yield
        finally:
            self._polled_at = self._loop.time()
            self._is_handling = False

    # The group.

    @property
    def membership(self) -> Membership:
        return self._assignment.membership

    @property
    def is_rejoining(self) -> bool:
        return self._assignment.is_rejoining

    def may_commit(self, one: TopicPartition) -> bool:
        """By itself. What a topic that is gone would be committed for is the next one of its name."""
        return self._is_own(one) and not self._cluster.is_gone(one.topic)

    def _is_own(self, one: TopicPartition) -> bool:
        """Whether its offsets are this member's, and of the topic as it is."""
        place = self.positions.get(one)
        topic_id = None if place is None else place.topic_id
        return self._assignment.may_commit(one) and not self._cluster.is_replaced(one.topic, topic_id)

    def _group_has_news(self) -> None:
        # What is committed already would be lost if it was put back, and then taken away.
        if self._options.delivery != "at-most-once":
            self._interrupt()
        self._woken.set()

    def _topic_gone(self) -> bool:
        """Whether a group will see to it that a topic that is not there is not read."""
        self._assignment.look_again()
        return self._assignment.is_of_group

    def _is_stuck(self) -> bool:
        """A handler that still runs is slow, not stuck; so is a loop that has moved since it was looked at last."""
        if self._is_polling or self._is_handling:
            return False
        marks = () if self._out is None else tuple(entry.place.position for entry in self._out.entries)
        if marks != self._marks:
            self._marks = marks
            self._polled_at = self._loop.time()
        return (self._loop.time() - self._polled_at) * 1000 > self._options.member.max_poll_interval_ms

    # Offsets.

    def group_offsets(self) -> GroupOffsets:
        self._check_open()
        return GroupOffsets(
            self.membership,
            {
                one: place.to_be_committed(place.out_to)
                for one, place in list(self.positions.items())
                if place.is_ready and self._is_own(one)
            },
        )

    async def commit(self, offsets: Mapping[TopicPartition, int | Offset] | None) -> None:
        self._check_open()
        if offsets is None:
            offsets = self.group_offsets().offsets
            for place in self.positions.values():
                place.finished = place.position
        await self._committer.commit(as_offsets(offsets))

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        self._check_open()
        return await self._committer.fetch(as_places(partitions))
