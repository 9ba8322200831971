"""Machines that are addresses of the loopback, where nobody may make namespaces: proxies between them can be cut.

Whoever wants to reach a machine is given the address of a proxy that knows both ends. What it forwards waits while they
are cut off from each other, as packets do that are sent again and again; new connections are taken, and lead nowhere. A
port at which nobody listens is refused by the proxy, too. `proxied_broker` sends a broker to the proxies.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

from tests.chaos.network import Machine

LOOK_AGAIN_S = 0.05
PORTION_BYTES = 65_536


class _Way:
    """What one host sends to another."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.is_open.set()


class _Link:
    """All connections that one host makes to a port of another."""

    def __init__(self, here: tuple[str, int], there: tuple[str, int], out: _Way, back: _Way) -> None:
        self._here = here
        self._there = there
        self._out = out
        self._back = back
        self._refused = asyncio.Event()

    async def run(self) -> None:
        while True:
            await self._until_somebody_listens()
            self._refused.clear()
            # Begun apart: a start_server that is cancelled on its way leaves its listener open.
            server = await asyncio.start_server(self._taken, *self._here, start_serving=False)
            try:
                await server.start_serving()
                await self._refused.wait()
            finally:
                server.close()

    async def _until_somebody_listens(self) -> None:
        while True:
            await self._whole()
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(*self._there)
                writer.transport.abort()
                return
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _whole(self) -> None:
        await self._out.is_open.wait()
        await self._back.is_open.wait()

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_writer: asyncio.StreamWriter | None = None
        try:
            await self._whole()
            far_reader, far_writer = await asyncio.open_connection(*self._there)
            out, back = self._forward(reader, far_writer, self._out), self._forward(far_reader, writer, self._back)
            await asyncio.gather(out, back)
        except OSError:
            self._refused.set()
        finally:
            for each in (writer, far_writer):
                if each is not None:
                    each.transport.abort()

    @staticmethod
    async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: _Way) -> None:
        """An end that is gone is an end for the other, once that can hear of it."""
        with contextlib.suppress(OSError):
            while portion := await reader.read(PORTION_BYTES):
                await way.is_open.wait()
                writer.write(portion)
                await writer.drain()
        await way.is_open.wait()
        writer.close()


class ProxyNetwork:
    """A context manager, with what `Network` has."""

    def __init__(self) -> None:
        self._count = 0
        self._ways: dict[tuple[str, str], _Way] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)

    def __enter__(self) -> ProxyNetwork:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def add_machine(self) -> Machine:
        self._count += 1
        return Machine(f"127.7.{self._count}.2", f"127.7.{self._count}.1", ())

    def reach(self, sender: Machine | None, receiver: Machine, port: int) -> str:
        """The host at which one machine, or whoever is outside of all, finds a port of another."""
        if sender is None:
            here, name = receiver.router_host, receiver.router_host
        else:
            here, name = f"127.7.{_number(sender)}.{100 + _number(receiver)}", sender.host
        self._do(self._add((here, port), (receiver.host, port), (name, receiver.host), (receiver.host, name)))
        return here

    def cut(self, sender: str, receiver: str) -> None:
        """What one host sends to another is kept from it from now on."""
        self._do(self._set(sender, receiver, is_open=False))

    def mend(self, sender: str, receiver: str) -> None:
        self._do(self._set(sender, receiver, is_open=True))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # In the loop's thread

    async def _add(
        self, here: tuple[str, int], there: tuple[str, int], out: tuple[str, str], back: tuple[str, str]
    ) -> None:
        link = _Link(here, there, self._way(out), self._way(back))
        self._tasks.add(asyncio.create_task(link.run()))

    def _way(self, ends: tuple[str, str]) -> _Way:
        return self._ways.setdefault(ends, _Way())

    async def _set(self, sender: str, receiver: str, *, is_open: bool) -> None:
        event = self._way((sender, receiver)).is_open
        event.set() if is_open else event.clear()

    async def _end(self) -> None:
        mine = asyncio.current_task()
        while others := [task for task in asyncio.all_tasks() if task is not mine]:  # one more may have been accepted
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)


def _number(machine: Machine) -> int:
    return int(machine.host.split(".")[2])
