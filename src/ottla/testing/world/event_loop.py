"""An asyncio event loop whose time is the world's: it never waits, and connects through the world's network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.world.world import World

MOST_STEPS_AT_ONCE = 200_000  # without time passing: more is a loop that spins


class SimulatedEventLoop(asyncio.BaseEventLoop):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._selector = self  # the base class asks it to wait
        self.steps = 0
        """How many rounds it made: what a client costs while nothing happens."""
        self.before_step: Callable[[], None] | None = None
        """Called before each round: for whoever wants to cancel at one of them."""
        self._steps_since = 0
        self._last_seconds = 0.0

    def time(self) -> float:
        return self._world.now()

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)  # type: ignore[attr-defined]

    def select(self, timeout: float | None) -> list[Any]:
        self._world.pass_time(timeout)
        return []

    def _run_once(self) -> None:
        self.steps += 1
        if self.time() > self._last_seconds:
            self._last_seconds, self._steps_since = self.time(), 0
        self._steps_since += 1
        if self._steps_since > MOST_STEPS_AT_ONCE:
            raise RuntimeError(f"the event loop spins at {self.time()} seconds")
        if self.before_step is not None:
            self.before_step()
        super()._run_once()  # type: ignore[misc]

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none: the network calls by itself."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        """There is one thread."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str = "", port: int = 0, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        return await self._world.network.connect(protocol_factory, host, port)
