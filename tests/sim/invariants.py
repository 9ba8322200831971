"""What must be true of the replicas of a cluster after every event.

- One leader an epoch. Who leads in the newest has all that was committed.
- The high watermark of an epoch never falls.
- What was once below a leader's high watermark, and on its disk where that is asked for, is committed: it is the same
  on every replica, up to that replica's own high watermark, and on every later leader.

Only what has changed since the last look is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.records.read import read_batches
from ottla.replica.machine import Role
from ottla.replica.partition import Partition
from ottla.testing.simulation.broker_machine import BrokerMachine
from ottla.testing.simulation.machine import Machine
from ottla.testing.simulation.simulation import Simulation

READ_BYTES = 1 << 20
Name = tuple[str, int]


class Batch(NamedTuple):
    """As much of a batch as tells it from others."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


class Seen(NamedTuple):
    """A replica as it was at the last look."""

    role: Role
    epoch: int
    high_watermark: int
    committed: int  # of that, what the disk holds, where acknowledgements wait for it
    end_offset: int


class Broken(AssertionError):
    """An invariant is."""


class Committed:
    """What was committed of one partition."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def until(self, offset: int) -> list[Batch]:
        return [batch for batch in self.batches if batch.last_offset < offset]


class Invariants:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._leaders: dict[tuple[Name, int], str] = {}  # by partition and epoch
        self._newest: dict[Name, int] = {}  # epoch in which somebody leads
        self._high_watermarks: dict[tuple[Name, int], int] = {}
        self._committed: dict[Name, Committed] = {}
        self._seen: dict[tuple[str, int, Name], Seen] = {}
        simulation.checks.append(self.check)

    def committed_end(self, name: Name) -> int:
        return self._committed[name].end_offset if name in self._committed else 0

    def check(self, machine: Machine) -> None:
        """After a round of a machine."""
        if isinstance(machine, BrokerMachine) and machine.is_serving:
            for topic in machine.broker.topics.by_name.values():
                for partition in topic.partitions:
                    self._look(machine, partition)

    def _look(self, machine: BrokerMachine, partition: Partition) -> None:
        state = partition.machine
        seen = Seen(state.role, state.epoch, state.high_watermark, state.committed, partition.log.end_offset)
        name = partition.topic, partition.index
        key = machine.address, machine.lives, name
        before = self._seen.get(key)
        if before == seen or partition.log.failure is not None:
            return
        self._seen[key] = seen
        committed = self._committed.setdefault(name, Committed())
        where = f"{machine.address} of {partition.name} as {seen}"
        if seen.role is Role.LEADER:
            self._look_at_leader(machine, name, seen, where)
        if seen.role is Role.LEADER and seen.epoch >= self._newest.get(name, 0):
            self._newest[name] = seen.epoch
            self._compare(partition, committed, committed.end_offset, where, before, seen)
        else:
            self._compare(partition, committed, min(seen.high_watermark, committed.end_offset), where, before, seen)
        if seen.role is Role.LEADER:
            # One that led before may hear late of what its followers have; who leads now must have it, too.
            self._commit(partition, committed, seen)

    def _look_at_leader(self, machine: BrokerMachine, name: Name, seen: Seen, where: str) -> None:
        leader = self._leaders.setdefault((name, seen.epoch), machine.address)
        if leader != machine.address:
            self._fail(f"{leader} led in the same epoch: {where}")
        high_watermark = self._high_watermarks.get((name, seen.epoch), 0)
        if seen.high_watermark < high_watermark:
            self._fail(f"the high watermark falls from {high_watermark}: {where}")
        self._high_watermarks[name, seen.epoch] = seen.high_watermark

    def _compare(
        self, partition: Partition, committed: Committed, end_offset: int, where: str, before: Seen | None, now: Seen
    ) -> None:
        """A replica has what was committed up to an offset."""
        if end_offset > now.end_offset:
            self._fail(f"committed records from {now.end_offset} to {end_offset} are gone: {where}")
        start = 0
        is_same = before is not None and (before.role, before.epoch) == (now.role, now.epoch)
        if before is not None and is_same and now.end_offset >= before.end_offset:
            start = min(before.high_watermark, end_offset)  # below it nothing was cut
        wanted = [batch for batch in committed.until(end_offset) if batch.last_offset >= start]
        found = [batch for batch in batches_of(partition, start) if batch.last_offset < end_offset]
        if wanted != found:
            self._fail(f"committed records are others: {where}, {found} where {wanted} were")

    def _commit(self, partition: Partition, committed: Committed, seen: Seen) -> None:
        if seen.committed > committed.end_offset:
            for batch in batches_of(partition, committed.end_offset):
                if batch.last_offset < seen.committed:
                    committed.batches.append(batch)

    def _fail(self, what: str) -> None:
        raise Broken(f"{what}\n{self._simulation.story()}")


def batches_of(partition: Partition, start: int) -> Iterator[Batch]:
    """Those that are written, from the one with an offset on."""
    log, offset = partition.log, max(start, partition.log.log_start_offset)
    while offset < log.end_offset:
        found = log.read(offset, READ_BYTES, log.end_offset)
        if found is None:
            return
        for batch in read_batches(found.read(), with_control=True):
            header = batch.header
            offset = header.next_offset
            yield Batch(header.base_offset, header.last_offset, header.leader_epoch, header.crc)
