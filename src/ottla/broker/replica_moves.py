"""Replicas that move between the data folders of this broker (AlterReplicaLogDirs), while they are written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.events import Events
from ottla.broker.loop.slices import Slices, Steps, Task
from ottla.log.errors import LogError
from ottla.log.moving import LogMove

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.log.manager import LogManager
    from ottla.replica.partition import Partition

events = Events("ottla.broker")


class _Moving(NamedTuple):
    move: LogMove
    task: Task


class ReplicaMoves:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._slices = Slices(broker.loop, takes_turns=False)  # one after the other: each keeps the disk busy
        self._moving: dict[tuple[str, int], _Moving] = {}

    def begin(self, partition: Partition, target: LogManager) -> None:
        """Have a replica in a folder. Whatever way it was on before, it is on no more."""
        name = partition.topic, partition.index
        known = self._moving.get(name)
        if known is not None:
            if known.move.target is target:
                return
            self._cancel(name)
        if self._broker.logs.manager_of(partition.log) is target:
            return
        move = LogMove(self._broker.logs, name, target)
        move.begin(self._broker.clock_ms())
        task = self._slices.start(self._steps(partition, move), lambda _none, failure: self._ended(partition, failure))
        self._moving[name] = _Moving(move, task)

    def resume(self) -> None:
        """Go on with what was on its way when the broker stopped, or crashed."""
        for target in self._broker.logs.sound:
            for topic_id, index in target.unfinished:
                partition = self._broker.topics.partition_by_id(topic_id, index)
                if partition is None or partition.log.failure is not None:
                    continue
                try:
                    self.begin(partition, target)
                except LogError as failure:
                    events.warning("a replica stays in its folder", partition=partition.name, reason=failure)
            target.unfinished.clear()

    def _steps(self, partition: Partition, move: LogMove) -> Steps:
        log = yield from move.run(self._broker.clock_ms, partition.writer.write_gathered)
        if log is not None:
            partition.replace_log(log)

    def _ended(self, partition: Partition, failure: Exception | None) -> None:
        self._moving.pop((partition.topic, partition.index), None)
        if failure is not None:
            events.warning("a replica stays in its folder", partition=partition.name, reason=failure)

    def to(self, target: LogManager) -> dict[tuple[str, int], LogMove]:
        """The replicas that are on their way to a folder."""
        return {name: moving.move for name, moving in self._moving.items() if moving.move.target is target}

    def _cancel(self, name: tuple[str, int]) -> None:
        moving = self._moving.pop(name)
        moving.task.cancel()
        moving.move.drop_copy(self._broker.clock_ms())  # of one whose turn has not come: it has no steps to end

    def stop(self) -> None:
        for name, moving in list(self._moving.items()):
            moving.move.is_interrupted = True
            self._cancel(name)
