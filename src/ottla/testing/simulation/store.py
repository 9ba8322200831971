"""One store for all brokers of a simulation, at an address of the network as they are.

A broker whose way to the store is blocked gets no answers until it is open again; a change that it asked for meanwhile
may have been made or not, and it may be told that nobody knows. Who is silent for too long loses the session: a broker
that is cut off, stands still, or is no more. It finds that out, with a new session, when it reaches the store again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import TYPE_CHECKING

from ottla.broker.loop.loop import Loop, LoopWorker
from ottla.controller.local_store import LocalStore
from ottla.controller.memory_nodes import MemoryNodes, MemoryTree
from ottla.controller.store import CommitUncertain, Operation, Store

if TYPE_CHECKING:
    from ottla.testing.simulated_system import SimulatedWorker
    from ottla.testing.simulation.machine import Machine
    from ottla.testing.simulation.simulation import Simulation

ADDRESS = "10.0.9.1"
SESSION_SECONDS = 3.0
LOOK_SECONDS = 0.25  # between two looks at who is silent
MOST_TELL_SECONDS = 0.01  # until the others are told of a change


class SimulatedStore:
    """`tree` is what the cluster remembers."""

    def __init__(self, simulation: Simulation, session_seconds: float = SESSION_SECONDS) -> None:
        self.tree = MemoryTree()
        self.session_seconds = session_seconds
        self.simulation = simulation
        self.random = Random(f"store {simulation.seed}")
        self.outlives_processes = False
        """Whether the session of a process that was killed lasts for a while: with ZooKeeper, but not with a file."""
        self._sessions: list[_Session] = []
        self._is_telling = False
        self._looks = False

    def opener(self, machine: Machine) -> Callable[[Loop], Store]:
        """For a broker on this machine."""

        def open_store(loop: Loop) -> Store:
            worker = machine.system.make_worker("store")
            worker.is_held = lambda: not self.is_reachable(machine)
            opened = _Session(self, machine, worker)
            store = LocalStore(lambda: opened.nodes, LoopWorker(loop, worker))
            opened.store = store
            self._sessions.append(opened)
            self._look_later()
            return store

        return open_store

    def is_reachable(self, machine: Machine) -> bool:
        network = self.simulation.network
        return not (network.is_blocked(machine.address, ADDRESS) or network.is_blocked(ADDRESS, machine.address))

    # Silence

    def _look_later(self) -> None:
        if not self._looks:
            self._looks = True
            self.simulation.timeline.after(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._looks = False
        for session in list(self._sessions):
            session.look()
        if self._sessions:
            self._look_later()

    def forget(self, session: _Session) -> None:
        if session in self._sessions:
            self._sessions.remove(session)

    def expire(self, machine: Machine) -> None:
        """End the session of a machine at once, as ZooKeeper does when it is asked to."""
        for session in self._sessions:
            if session.machine is machine:
                session.expire()

    # Changes

    def changed(self) -> None:
        """Tell all who can be told, soon."""
        if not self._is_telling:
            self._is_telling = True
            self.simulation.timeline.after(self.random.uniform(0, MOST_TELL_SECONDS), self._tell)

    def _tell(self) -> None:
        self._is_telling = False
        for session in self._sessions:
            if session.store is not None and session.is_alive:
                session.store.look()


class _Session:
    """Of one life of a broker, until it is forgotten."""

    def __init__(self, stores: SimulatedStore, machine: Machine, worker: SimulatedWorker) -> None:
        self.machine = machine
        self.worker = worker
        self.store: LocalStore | None = None
        self.nodes = _RemoteNodes(stores, self)
        self._stores = stores
        self._loop = machine.loop
        self._heard_at = machine.system.now()

    @property
    def is_alive(self) -> bool:
        return self._loop is not None and self.machine.loop is self._loop

    def look(self) -> None:
        machine = self.machine
        if self.is_alive and not machine.is_paused and self._stores.is_reachable(machine):
            if self.nodes.is_expired:
                self.nodes.begin_again()
                assert self.store is not None
                self.store.look()  # so that it is told
            self._heard_at = machine.system.now()
        elif machine.system.now() - self._heard_at > self._stores.session_seconds:
            self.expire()

    def expire(self) -> None:
        if not self.nodes.is_expired:
            self._stores.simulation.note(f"the session of {self.machine.address} is over")
            self.nodes.end()
        if not self.is_alive:
            self._stores.forget(self)


class _RemoteNodes(MemoryNodes):
    def __init__(self, stores: SimulatedStore, session: _Session) -> None:
        super().__init__(stores.tree)
        self._stores = stores
        self._of = session
        self.is_expired = False

    def commit(self, operations: Sequence[Operation], *, is_vital: bool = False) -> Collection[str]:
        is_made = is_told = True
        if self._of.worker.has_waited:
            self._of.worker.has_waited = False
            is_made, is_told = self._stores.random.choice([(True, True), (True, False), (False, False)])
        changed: Collection[str] = ()
        if is_made:
            if self.is_expired:
                self.begin_again()
            changed = super().commit(operations, is_vital=is_vital)
            self._stores.changed()
        if not is_told:
            raise CommitUncertain("the connection to the store was lost")
        return changed

    def end(self) -> None:
        self.is_expired = True
        self._tree.end_session(self._session)
        self._stores.changed()

    def begin_again(self) -> None:
        self.is_expired = False
        self.expire()
        self._stores.changed()

    def close(self) -> None:
        self._stores.forget(self._of)
        self.end()

    def abandon(self) -> None:
        """A process that was killed says nothing."""
        if not self._stores.outlives_processes:
            self.close()
