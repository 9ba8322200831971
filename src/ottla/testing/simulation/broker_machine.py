"""A machine with a broker and a disk: both can crash, each in its own way, and come back with what is left."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sized
from typing import TYPE_CHECKING

from ottla.broker.broker import Broker
from ottla.broker.config.layers import BrokerSettings
from ottla.broker.loop.loop import Loop
from ottla.broker.replication.serving import ReplicaSession
from ottla.controller.store import StoreError
from ottla.testing.files import Crashed, SimulatedFiles
from ottla.testing.loss import RandomLoss
from ottla.testing.simulation.machine import Machine

if TYPE_CHECKING:
    from ottla.testing.simulation.simulation import Simulation

FOLDER = "/data"
PORT = 9092
RESTART_SECONDS = 0.5
MOST_TIMER_SECONDS = 1.0


class BrokerMachine(Machine):
    def __init__(
        self, simulation: Simulation, address: str, settings: Mapping[str, str], *, syncs: bool = True
    ) -> None:
        """`syncs`: it acknowledges only what is on the disk, and so may lose its power."""
        self.files = SimulatedFiles()
        make_data_folder(self.files)
        super().__init__(simulation, address, self.files)
        self.syncs = syncs
        self.lives = 0
        self._boots = 0
        self._settings = {"listeners": f"PLAINTEXT://{address}:{PORT}"} | dict(settings)
        self._broker: Broker | None = None
        self.is_serving = False
        """Whether a broker has started here."""
        self._is_stopping = False
        self._starts_again = False  # as soon as it has stopped

    @property
    def broker(self) -> Broker:
        assert self._broker is not None, f"the broker of {self.address} is down"
        return self._broker

    # Life

    def start(self) -> None:
        """The broker is there, or there again. A crash of the machine may end that early."""
        if self.loop is not None:
            self._starts_again = self._is_stopping
            return
        self.simulation.network.power_on(self.address)
        self.lives += 1
        self.simulation.note(f"{self.address} starts")
        self.loop = Loop(self.system)
        self._broker = Broker(
            self.loop, self.files, FOLDER, BrokerSettings(self._settings), syncs=self.syncs,
            open_store=self.simulation.store.opener(self), boot_id=f"{self.address} {self._boots}",
        )  # fmt: skip
        self._bring_up(self._broker.begin)

    def _bring_up(self, step: Callable[[], None]) -> bool:
        """Whether a step of the start could be made."""
        try:
            step()
        except Crashed:
            self.lose_power()
            return False
        except (OSError, StoreError) as error:  # a full disk: whoever looks after the process starts it again
            self.simulation.note(f"{self.address} cannot start: {error}")
            self.kill()
            self.simulation.timeline.after(RESTART_SECONDS, self.start)
            return False
        return True

    def run_once(self) -> None:
        self.files.now_ms = self.system.clock_ms()
        super().run_once()
        if self.files.is_down:
            self.lose_power()
        elif self._broker is not None and self._broker.halted is not None:
            self.kill()
        elif not self.is_serving and self._broker is not None and self._has_begun(self._broker):
            self.simulation.note(f"{self.address} serves")
            self.is_serving = True

    def _has_begun(self, broker: Broker) -> bool:
        return broker.has_joined and self._bring_up(broker.serve)

    def stop(self) -> None:
        """In good order, when others lead what this one has led. One that cannot do that is killed."""
        if self._is_stopping:
            return
        loop = self.loop
        if loop is None or not self.is_serving or not self.simulation.store.is_reachable(self):
            self.kill()
            return
        self.simulation.note(f"{self.address} stops")
        self._is_stopping = True
        self.broker.hand_over(lambda: self.simulation.timeline.after(0, lambda: self._close(loop)))

    def _close(self, loop: Loop) -> None:
        if self.loop is not loop:
            return  # it was killed meanwhile
        if not self.simulation.store.is_reachable(self):
            self.kill()
            return
        try:
            self.broker.close()
        except Crashed:
            self.lose_power()
            return
        except OSError as error:
            self.simulation.note(f"{self.address} cannot be closed in good order: {error}")
        self._ended()
        loop.close()
        self.simulation.note(f"{self.address} has stopped")
        latest = loop.now() + MOST_TIMER_SECONDS  # one that finds nothing to do soon does no harm
        timers = [timer.callback for timer in loop._timers if timer.callback is not None and timer.due > latest]
        assert not timers, f"{self.address} has left timers: {timers}\n{self.simulation.story()}"
        assert not self.system.watched_count, f"{self.address} has left sockets\n{self.simulation.story()}"

    def leftovers(self, clients: Collection[str]) -> list[str]:
        """What requests of clients at these addresses have left behind, and should not, when they have gone."""
        broker = self.broker
        connections = broker.frontend.connections
        left = [f"connection {each!r}" for each in connections if each.address in clients]
        for slices in (broker.request_slices, broker.produce_slices, broker.coordinator_slices, broker.pages.slices):
            left += ["a task"] * len(slices)
        for topic in broker.topics.by_name.values():
            for partition in topic.partitions:
                if partition is not None:
                    readers = [each for each in partition.readers.waiting if not isinstance(each, ReplicaSession)]
                    waiting: list[Sized] = [readers, partition.acknowledgements]
                    left += [f"somebody waits for {partition.name}"] * sum(len(each) for each in waiting)
        return left

    def kill(self) -> None:
        """End the process: nothing that was written is lost, and connections are closed."""
        if self.loop is None:
            return
        self.simulation.note(f"{self.address} is killed")
        self._end_process()
        self.files.kill()

    def lose_power(self) -> None:
        """What was not synced may be lost, torn, or there. Nobody is told."""
        if self.loop is None:
            return
        self.simulation.note(f"{self.address} loses its power")
        self.simulation.network.power_off(self.address)
        self._end_process()
        self._boots += 1
        self.files.crash(RandomLoss(self.random))

    def slow_disk(self, seconds: float) -> None:
        """Syncs take so long; what is written is in the cache meanwhile."""
        self.simulation.note(f"the disk of {self.address} is slow for {seconds:.3f} s")
        self.system.hold_jobs(self.system.now() + seconds)
        self.simulation.timeline.after(seconds, self.system.wake)

    def lose_disk(self) -> None:
        """The power is lost and the disk with it: an empty one takes its place."""
        self.lose_power()
        self.simulation.note(f"{self.address} loses its disk")
        self.files.disarm()
        self.files.remove_tree(FOLDER)
        make_data_folder(self.files)

    def _end_process(self) -> None:
        broker = self.broker
        self._ended()
        self.system.kill()
        broker.crash()

    def _ended(self) -> None:
        self._broker = self.loop = None
        self.is_serving = self._is_stopping = False
        if self._starts_again:
            self._starts_again = False
            self.simulation.timeline.after(0, self.start)


def make_data_folder(files: SimulatedFiles) -> None:
    """The data folder is there for good, as an administrator makes it."""
    files.make_folder(FOLDER)
    files.sync_folder(FOLDER.rpartition("/")[0])
