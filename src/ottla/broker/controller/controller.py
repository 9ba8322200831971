"""The broker that decides for the cluster, for as long as it is the controller.

It takes one event after the other. Each is decided on the cluster as the store has it: the next event waits until the
changes of this one are in the store and replayed. Then the changes go to the other brokers, and are applied on this
one. Whoever asked is answered last. A request that is given up does not end what was decided for it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from ottla.broker.controller.applier import Applier
from ottla.broker.controller.feed import Feed
from ottla.broker.events import Events
from ottla.broker.loop.loop import Loop
from ottla.broker.loop.slices import Finished, Slices, Waiting, parts_of
from ottla.controller.changes import Change, ChangedStates, NewPartitions, NewTopic, operations_of
from ottla.controller.cluster import Cluster
from ottla.controller.election import Office
from ottla.controller.growing import GrowthReports
from ottla.controller.layout import PartitionState
from ottla.controller.steps import InSteps
from ottla.controller.store import CommitTooLarge, CommitUncertain, Store, StoreError, VersionChanged, size_of
from ottla.controller.topics import still_possible
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.cluster_feed import ClusterFeedResponse

events = Events("ottla.broker")

EPOCH_CHECK_BYTES = 1000
STATES_A_PIECE = 200

Outcomes = list[tuple[Change, ApiError | None]]
Done = Callable[[Outcomes, Exception | None], None]
Decide = Callable[[], "Sequence[Change] | InSteps[list[Change]]"]
"""Looks at the cluster, and nothing else, when its turn comes. Nothing else is decided between its steps."""


class NotController(ApiError):
    """Somebody else decides."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, "This broker is not the controller.")


class _Event(NamedTuple):
    decide: Decide
    done: Done
    is_vital: bool


class Controller:
    def __init__(
        self,
        loop: Loop,
        store: Store,
        cluster: Cluster,
        office: Office,
        applier: Applier,
        node_id: int,
        lost: Callable[[], None],
    ) -> None:
        """`lost`: called once, when somebody else has taken the office."""
        self.cluster = cluster
        self.office = office
        self.feed = Feed(loop, cluster, node_id)
        self.growing: dict[str, GrowthReports] = {}  # what leaders have told of topics that grow in order
        self._store = store
        self._loop = loop
        self._applier = applier
        self._lost = lost
        self._events: deque[_Event] = deque()
        self._in_store: _Event | None = None  # that is decided on, or whose changes are on their way there
        self._slices = Slices(loop)
        self._is_called = False
        self._is_stopped = False

    # Deciding, remembering, applying

    def decided(self, decide: Decide) -> Generator[Waiting, None, Outcomes]:
        """What became of the changes that are decided on, once they are true on this broker."""
        outcomes: Outcomes = []

        def begin(finished: Finished) -> None:
            def done(found: Outcomes, failure: Exception | None) -> None:
                outcomes.extend(found)
                finished(failure)

            self.submit(decide, done)

        yield Waiting(begin)
        return outcomes

    def submit(self, decide: Decide, done: Done, *, is_vital: bool = False) -> None:
        """`is_vital`: on a full disk, too."""
        if self._is_stopped:
            self._loop.call_soon(lambda: done([], NotController()))
            return
        self._events.append(_Event(decide, done, is_vital))
        self._call_next()

    def _call_next(self) -> None:
        if self._events and self._in_store is None and not self._is_called:
            self._is_called = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._is_called = False
        if self._is_stopped or self._in_store is not None or not self._events:
            return
        event = self._in_store = self._events.popleft()
        steps = self._decided_groups(event)
        try:
            next(steps)
        except StopIteration as end:
            self._begin_to_store(event, end.value, None)
        except Exception as error:
            self._begin_to_store(event, None, error)
        else:
            self._slices.start(steps, partial(self._begin_to_store, event))

    def _decided_groups(self, event: _Event) -> InSteps[deque[list[Change]]]:
        """The changes that are decided on, as they go to the store together. Most are there after the first step."""
        changes = event.decide()
        if isinstance(changes, Generator):
            changes = yield from changes
        groups = yield from in_commits(changes, self._store.max_commit_bytes)
        return groups

    def _begin_to_store(self, event: _Event, groups: deque[list[Change]] | None, failure: Exception | None) -> None:
        if groups and not self._is_stopped:
            self._store_next(event, groups, [])
            return
        self._in_store = None
        self._call_next()
        event.done([], NotController() if groups else failure)

    def _store_next(self, event: _Event, groups: deque[list[Change]], stored: list[Change]) -> None:
        group = groups.popleft()
        operations = chain([self.office.check], operations_of(group))  # they are made on the thread of the store
        done = partial(self._stored, event, group, groups, stored)
        self._store.commit(operations, done, is_vital=event.is_vital)

    def _stored(
        self,
        event: _Event,
        group: list[Change],
        groups: deque[list[Change]],
        stored: list[Change],
        failure: StoreError | None,
    ) -> None:
        if isinstance(failure, VersionChanged | CommitUncertain):
            # In the second case nobody knows what the store has: who takes the office next reads it.
            self._in_store = None
            self.stop()
            event.done([], NotController())
            self._lost()
            return
        if failure is None:
            for change in group:
                self.cluster.replay(change)
            self.feed.append(group)
            stored += group
            if groups:
                self._store_next(event, groups, stored)
                return
        self._in_store = None
        self._call_next()
        refused: Outcomes = []
        if failure is not None:
            refusal = _storage_refusal(failure)
            refused = [(change, refusal) for change in chain(group, *groups)]
        if stored:
            self._applier.apply(stored, partial(self._applied, event, stored, refused))
        else:
            event.done(refused, None)

    def _applied(
        self,
        event: _Event,
        changes: Sequence[Change],
        refused: Outcomes,
        refusals: list[ApiError | None],
        failure: Exception | None,
    ) -> None:
        outcomes = [*zip(changes, refusals, strict=True), *refused]
        undone = [
            change.undone()
            for change, refusal in outcomes
            if refusal is not None and isinstance(change, NewTopic | NewPartitions)
        ]
        if undone:
            # If this fails, they stay in the store: they can be deleted, or are there after the next start.
            decide = partial(still_possible, self.cluster, undone)
            self.submit(decide, lambda _outcomes, _failure: event.done(outcomes, failure))
        else:
            event.done(outcomes, failure)

    # Stopping

    @property
    def is_idle(self) -> bool:
        """Whether all that the store has is true."""
        return self._in_store is None and self._applier.is_idle

    def stop(self) -> None:
        """Decide nothing more; what is on its way to the store or from there goes on."""
        if self._is_stopped:
            return
        self._is_stopped = True
        waiting, self._events = self._events, deque()
        for event in waiting:
            self._loop.call_soon(partial(event.done, [], NotController()))
        self.feed.close(ClusterFeedResponse(error_code=ErrorCode.NOT_CONTROLLER))


def in_commits(changes: Sequence[Change], most_bytes: int) -> InSteps[deque[list[Change]]]:
    """What is committed together: all of it, unless the store takes less at once.

    States can be changed one after the other: what is left when a controller goes, its successor finds and decides.
    So where something is known only until a change is made, that one comes last.
    """
    if most_bytes == sys.maxsize or not changes:
        return deque([list(changes)] if changes else [])
    groups: deque[list[Change]] = deque()
    room = 0
    for change in chain.from_iterable(map(_pieces, changes)):
        size_bytes = sum(map(size_of, change.operations()))
        if not groups or size_bytes > room:
            groups.append([])
            room = most_bytes - EPOCH_CHECK_BYTES
        groups[-1].append(change)
        room -= size_bytes
        if isinstance(change, ChangedStates):
            yield
    return groups


def _pieces(change: Change) -> Iterator[Change]:
    if not isinstance(change, ChangedStates):
        yield change
        return
    states = [(name, index, state) for name, found in change.states.items() for index, state in found.items()]
    for part in parts_of(states, STATES_A_PIECE):
        by_name: dict[str, dict[int, PartitionState]] = {}
        for name, index, state in part:
            by_name.setdefault(name, {})[index] = state
        yield ChangedStates(by_name)


def _storage_refusal(error: StoreError) -> ApiError:
    if isinstance(error, CommitTooLarge):  # to ask again does not help
        return ApiError(ErrorCode.POLICY_VIOLATION, f"It is too large for the store of the cluster: {error}")
    events.warning("a change was refused", reason=error)
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"The store of the cluster cannot be written: {error}")
