"""How far groups are behind: in records that they would really get, by partition.

Partitions that this broker has no replica of are left out: nobody is asked for them. Of those that it follows, what it
knows to be committed counts. A log is looked at once for all groups, and then only what is new in it (`log/visible`).
That is done in steps. Who asks waits for it for a moment; if it takes longer, it goes on in the background, and what
was known before is told.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.events import Events
from ottla.broker.loop.slices import Steps, Task
from ottla.log.errors import LogError
from ottla.log.visible import VisibleTally, visible_count
from ottla.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.coordinator.offsets.offsets import Committed, PartitionKey
    from ottla.replica.partition import Partition

events = Events("ottla.broker")

PATIENCE_SECONDS = 1.0
LISTED_IN_A_STEP = 500
COUNTED_IN_A_STEP = 8


class Lag(NamedTuple):
    group: str
    topic: str
    partition: int
    committed_offset: int
    end_offset: int  # the last stable one: what is behind it can still be aborted
    records: int


Key = tuple[str, str, int]


class Lags:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tallies: dict[Partition, VisibleTally] = {}
        self._layouts: dict[Partition, int] = {}  # the version of a log's segments when it was last looked at
        self._lags: dict[Key, Lag] = {}
        self._look: Iterator[None] | None = None  # under way
        self._background: Task | None = None

    def known(self) -> list[Lag]:
        """Of every group that has committed offsets for topics that are there, as far as they were counted."""
        return list(self._lags.values())

    def refresh(self) -> Steps:
        """Count anew, for a moment; what is left then is counted in the background."""
        now = self._broker.loop.now
        until = now() + PATIENCE_SECONDS
        while self._go_on():
            if now() >= until:
                if self._background is None:
                    self._background = self._broker.pages.slices.start(self._rest(), self._rest_ended)
                return
            yield None

    def of_group(self, group_id: str) -> list[Lag]:
        """Counted at once."""
        found = []
        for shard in self._broker.groups.shards():
            for key, committed in shard.machine.offsets.of_group(group_id).items():
                partition = self._partition(key, committed)
                if partition is not None:
                    offset, end_offset = committed.value.offset, partition.log.last_stable_offset
                    records = visible_count(partition.log, offset, end_offset)
                    found.append(Lag(group_id, *key, offset, end_offset, records))
        return found

    def _rest(self) -> Steps:
        while self._go_on():
            yield None

    def _rest_ended(self, _result: object, failure: Exception | None) -> None:
        self._background = None
        if failure is not None:
            events.failure("lags cannot be counted")

    def _go_on(self) -> bool:
        """A step of the look under way, or of a new one; whether more are to come."""
        if self._look is None:
            self._look = self._look_at_all()
        try:
            next(self._look)
        except StopIteration:
            self._look = None
        except BaseException:
            self._look = None
            raise
        return self._look is not None

    def _look_at_all(self) -> Iterator[None]:
        wanted: list[tuple[str, Partition, int]] = []
        lowest: dict[Partition, int] = {}
        for group_id, partition, offset in self._committed():
            if partition is not None:
                wanted.append((group_id, partition, offset))
                lowest[partition] = min(offset, lowest.get(partition, offset))
            if len(wanted) % LISTED_IN_A_STEP == 0:
                yield
        self._tallies = {partition: tally for partition, tally in self._tallies.items() if partition in lowest}
        ends: dict[Partition, int] = {}
        for partition, start_offset in lowest.items():
            end_offset = partition.log.last_stable_offset
            tally = self._tallies.get(partition)
            if tally is None or tally.log is not partition.log:  # it may have moved to another folder
                self._tallies[partition] = VisibleTally(partition.log)
            try:
                yield from self._tallies[partition].counting(start_offset, end_offset)
            except (LogError, OSError) as error:
                events.warning("lags cannot be counted", partition=partition.name, reason=error)
            else:
                ends[partition] = end_offset
        known = set()
        counted = 0
        for number, (group_id, partition, offset) in enumerate(wanted):
            key = group_id, partition.topic, partition.index
            known.add(key)
            if partition in ends:
                counted += yield from self._keep(key, partition, offset, ends[partition])
            if counted == COUNTED_IN_A_STEP or number % LISTED_IN_A_STEP == 0:
                counted = 0
                yield
        self._layouts = {partition: partition.log.segments.layout_version for partition in ends}
        yield from self._drop_others(known)

    def _keep(self, key: Key, partition: Partition, offset: int, end_offset: int) -> Generator[None, None, bool]:
        """Whether it had to be counted."""
        before = self._lags.get(key)
        is_same_layout = self._layouts.get(partition) == partition.log.segments.layout_version
        if before is not None and is_same_layout and before[3:5] == (offset, end_offset):
            return False
        try:
            records = yield from self._tallies[partition].between(offset, end_offset)
        except (LogError, OSError):  # the log is gone; or its disk, which others tell of
            records = None
        if records is not None:
            self._lags[key] = Lag(*key, offset, end_offset, records)
        return True

    def _drop_others(self, known: set[Key]) -> Iterator[None]:
        """Forget what nobody has committed any more."""
        if len(self._lags) > len(known):
            for number, key in enumerate(list(self._lags)):
                if key not in known:
                    del self._lags[key]
                if number % LISTED_IN_A_STEP == 0:
                    yield

    def _committed(self) -> Iterator[tuple[str, Partition | None, int]]:
        for shard in self._broker.groups.shards():
            offsets = shard.machine.offsets
            for group_id in offsets.groups():
                for key, committed in list(offsets.of_group(group_id).items()):
                    yield group_id, self._partition(key, committed), committed.value.offset

    def _partition(self, key: PartitionKey, committed: Committed) -> Partition | None:
        """The one that was meant: not that of a topic that was made anew since."""
        partition = self._broker.topics.partition(*key)
        if partition is None or committed.value.topic_id not in (ZERO_UUID, partition.topic_id):
            return None
        return partition
