"""One machine of a simulation: its own system and clock, a loop while its process runs, and pauses."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

from ottla.broker.loop.loop import Loop
from ottla.testing.simulated_system import SimulatedSystem

if TYPE_CHECKING:
    from ottla.testing.files import SimulatedFiles
    from ottla.testing.simulation.simulation import Simulation


class Machine:
    def __init__(self, simulation: Simulation, address: str, files: SimulatedFiles | None = None) -> None:
        self.simulation = simulation
        self.address = address
        self.random = Random(f"machine {simulation.seed} {address}")
        self.system = SimulatedSystem(f"system {simulation.seed} {address}", simulation.network, address, files)
        self.loop: Loop | None = None
        self._paused_until = 0.0

    @property
    def is_up(self) -> bool:
        """Whether there is a process that runs, or would without the pause."""
        return self.loop is not None

    @property
    def is_paused(self) -> bool:
        return self._paused_until > self.system.now()

    def can_run(self) -> bool:
        loop = self.loop
        if loop is None or self.is_paused:
            return False
        return loop.is_busy() or loop.next_due() <= self.system.now() or self.system.can_go_on()

    def next_due(self) -> float:
        if self.loop is None:
            return math.inf
        return self._paused_until if self.is_paused else self.loop.next_due()

    def run_once(self) -> None:
        assert self.loop is not None
        self.loop.run_once()

    # Faults

    def pause(self, seconds: float) -> None:
        """The process stands still, as by SIGSTOP or on a busy machine; its connections stay."""
        self._paused_until = self.system.now() + seconds
        self.simulation.note(f"{self.address} stands still for {seconds:.3f} s")

    def jump_clock(self, ahead_ms: int) -> None:
        """Its clock shows another time; the one that never goes back is not touched."""
        self.system.clock_ahead_ms = ahead_ms
        self.simulation.note(f"the clock of {self.address} is {ahead_ms} ms ahead")
