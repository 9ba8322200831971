"""Many machines, one network, one time and one seed: what runs next, and what must be true after it.

    with Simulation(seed=7) as simulation:
        node = simulation.add_broker("10.0.0.1", {"node.id": "1"})
        node.start()
        simulation.timeline.after(3.0, node.kill)
        simulation.run_for(10.0)

One machine after the other makes a round of its loop, in an order that the seed decides. Time stands still while any of
them can do something, and then passes to the next moment at which something happens. After every round all `checks` are
called with the machine that made it: they raise when something is wrong. Two runs of one seed are the same:
`fingerprint` covers every packet and every round.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from random import Random
from typing import Self

from ottla.broker.loop.loop import Loop
from ottla.testing.simulated_system import START_CLOCK_MS
from ottla.testing.simulation.broker_machine import BrokerMachine
from ottla.testing.simulation.machine import Machine
from ottla.testing.simulation.network import Delays, SimulatedNetwork
from ottla.testing.simulation.randomness import taken_over
from ottla.testing.simulation.store import SimulatedStore
from ottla.testing.simulation.timeline import Timeline

MOST_ROUNDS_AT_ONCE = 200_000  # without time passing: more is a loop that spins


class Spinning(AssertionError):
    """A loop comes round and round, and time does not pass."""


class Mistake(AssertionError):
    """A broker told of a mistake of its own."""


class Simulation:
    def __init__(self, seed: int, delays: Delays | None = None) -> None:
        self.seed = seed
        self.random = Random(f"simulation {seed}")
        self.timeline = Timeline()
        self.network = SimulatedNetwork(self.timeline, Random(f"network {seed}"), delays or Delays(), self._sent)
        self.machines: list[Machine] = []
        self.store = SimulatedStore(self)
        self.checks: list[Callable[[Machine], object]] = []
        self.rounds = 0
        self.notes: deque[str] = deque(maxlen=2000)
        """What happened last, for whoever looks for the reason of a failure."""
        self._digest = hashlib.blake2b(digest_size=16)
        self._mistakes = _Mistakes(self.machines)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(taken_over(self.seed, lambda: self.timeline.seconds, self._time_ns))
        logger = logging.getLogger("ottla")
        logger.addHandler(self._mistakes)
        self._stack.callback(logger.removeHandler, self._mistakes)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _time_ns(self) -> int:
        return (START_CLOCK_MS + int(self.timeline.seconds * 1000)) * 1_000_000

    # Machines

    def add_broker(self, address: str, settings: Mapping[str, str], *, syncs: bool = True) -> BrokerMachine:
        machine = BrokerMachine(self, address, settings, syncs=syncs)
        self.machines.append(machine)
        return machine

    def add_machine(self, address: str) -> Machine:
        """One for clients: its process runs at once."""
        machine = Machine(self, address)
        machine.loop = Loop(machine.system)
        self.machines.append(machine)
        return machine

    # Time

    def run_for(self, seconds: float) -> None:
        self.run_until(lambda: False, seconds)

    def run_until(self, is_done: Callable[[], bool], most_seconds: float) -> bool:
        """Let everything happen until something is the case, or the time is over; whether it is the case."""
        end = self.timeline.seconds + most_seconds
        still_rounds = 0
        while not is_done():
            if self._step():
                still_rounds += 1
                if still_rounds > MOST_ROUNDS_AT_ONCE:
                    raise Spinning(f"at {self.timeline.seconds} s\n{self.story()}")
                continue
            still_rounds = 0
            due = min([self.timeline.next_due(), *(machine.next_due() for machine in self.machines)])
            self.timeline.jump_to(min(due, end))
            if due > end:
                return False
        return True

    def _step(self) -> bool:
        """Something that can happen now; whether there was something."""
        if self.timeline.run_due():
            return True
        ready = [machine for machine in self.machines if machine.can_run()]
        if not ready:
            return False
        machine = ready[0] if len(ready) == 1 else self.random.choice(ready)
        self.rounds += 1
        self._digest.update(f"{self.timeline.seconds:.9f} {machine.address}\n".encode())
        machine.run_once()
        self._check(machine)
        return True

    def _check(self, machine: Machine) -> None:
        if self._mistakes.found is not None:
            raise Mistake(f"{self._mistakes.found}\n{self.story()}")
        for check in self.checks:
            check(machine)

    # Looking

    def _sent(self, source: str, target: str, packet: bytes) -> None:
        self._digest.update(f"{source} {target} ".encode())
        self._digest.update(packet)

    def note(self, text: str) -> None:
        line = f"{self.timeline.seconds:10.4f} {text}"
        self.notes.append(line)
        self._digest.update(line.encode())

    def story(self) -> str:
        return "\n".join((f"seed {self.seed}", *self.notes))

    @property
    def fingerprint(self) -> str:
        """The same for two runs in which the same happened."""
        return self._digest.hexdigest()


class _Mistakes(logging.Handler):
    """What brokers take for their own mistakes. What follows from the crash of a machine is none."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        super().__init__(logging.ERROR)
        self.found: str | None = None
        self._machines = machines

    def emit(self, record: logging.LogRecord) -> None:
        if not any(machine.system.is_dead for machine in self._machines):
            self.found = self.format(record)
