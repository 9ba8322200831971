"""One network for all machines of a simulation: connections as TCP has them.

Bytes take a while, as the seed decides, and stay in order. What a machine sends while the way to the other is blocked
arrives afterwards, or never: nobody is told. A machine that lost its power forgets its connections. The other end
learns that when it sends something and the machine is up again; until then the connection is half open. A machine that
is up and has nobody who listens on a port refuses at once.

Without delays everything arrives within the call: the network of a single machine.
"""

from __future__ import annotations

import enum
import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple, Protocol

from ottla.broker.loop.system import READ, WRITE, Buffer
from ottla.testing.simulation.timeline import Timeline

STREAM_BYTES = 1 << 16  # what a socket holds that the other end has not taken


class Delays(NamedTuple):
    """How long a packet takes; now and then one is lost and sent again, which takes longer."""

    least_seconds: float = 0.0001
    most_seconds: float = 0.003
    loss_odds: float = 0.01
    most_lost_seconds: float = 0.4


class Host(Protocol):
    """What a network knows of a machine."""

    address: str
    is_touched: bool
    """Whether something may be ready that was not when somebody last looked."""

    def next_number(self) -> int:
        """For the next socket."""

    def part_of(self, size_bytes: int) -> int:
        """How many of so many bytes a socket moves at once."""

    @property
    def is_dead(self) -> bool:
        """Whether nothing leaves the machine any more, although its process does not know it yet."""


class Packet(enum.Enum):
    """What is not data."""

    CONNECT = enum.auto()
    ACCEPT = enum.auto()
    REFUSE = enum.auto()
    END = enum.auto()


class Stream:
    """Bytes on their way from one end of a connection to the other."""

    def __init__(self, network: SimulatedNetwork | None = None, source: str = "", target: str = "") -> None:
        self._network = network
        self.source, self.target = source, target
        self.data = bytearray()  # that arrived
        self.is_ended = False  # for the reader
        self.is_broken = False  # for the writer
        self.sender: SimulatedSocket | None = None
        self.receiver: SimulatedSocket | None = None
        self._under_way: deque[bytes | Packet] = deque()
        self._under_way_bytes = 0
        self._stuck = 0  # packets that would have arrived if the way were open
        self._arrives_after = 0.0

    @property
    def room_bytes(self) -> int:
        return STREAM_BYTES - len(self.data) - self._under_way_bytes

    def send(self, packet: bytes | Packet) -> None:
        self._under_way.append(packet)
        if isinstance(packet, bytes):
            self._under_way_bytes += len(packet)
            if self._network is not None and self._network.sent is not None:
                self._network.sent(self.source, self.target, packet)
        self._schedule()

    def _schedule(self) -> None:
        delay = None if self._network is None else self._network.draw_delay()
        if delay is None or self._network is None:
            self._arrive()
            return
        timeline = self._network.timeline
        self._arrives_after = max(self._arrives_after, timeline.seconds + delay)
        timeline.at(self._arrives_after, self._arrive)

    def _arrive(self) -> None:
        if not self._under_way:
            return  # dropped meanwhile
        if self._network is not None and self._network.is_blocked(self.source, self.target):
            self._stuck += 1
            self._network.stuck[self] = None
            return
        packet = self._under_way.popleft()
        if isinstance(packet, bytes):
            self._under_way_bytes -= len(packet)
        if self.receiver is not None:
            self.receiver.take(packet)

    def resume(self) -> None:
        """The way is open again."""
        stuck, self._stuck = self._stuck, 0
        for _ in range(stuck):
            self._schedule()

    def drop(self) -> None:
        """What is on its way never arrives."""
        self._under_way.clear()
        self._under_way_bytes = 0


class SimulatedSocket:
    """One end of a connection. It never blocks, and moves fewer bytes at a time than it could."""

    def __init__(self, machine: Host, incoming: Stream, outgoing: Stream, host: str) -> None:
        self._machine = machine
        self._number = machine.next_number()
        self._incoming = incoming
        self._outgoing = outgoing
        incoming.receiver = outgoing.sender = self
        self.host = host
        """The address at the other end."""
        self.is_connected = True
        self.is_refused = False
        self.is_forgotten = False
        """The machine has lost all memory of it."""
        self.connects_to: Callable[[], SimulatedListener | None] = _nobody
        self.has_arrived = True
        """Whether the machine has heard of the connection."""

    def fileno(self) -> int:
        return self._number

    # What arrives

    def take(self, packet: bytes | Packet) -> None:
        self._machine.is_touched = True
        match packet:
            case Packet.CONNECT:
                self._take_connection()
            case Packet.ACCEPT:
                self.is_connected = True
            case Packet.REFUSE:
                self.refuse()
            case Packet.END:
                self._break()
            case bytes() if self.is_forgotten:
                self._outgoing.send(Packet.END)  # a connection that this machine does not know
            case bytes() if self._number >= 0:
                self._incoming.data += packet
            case _:
                pass  # for a socket that is closed

    def _take_connection(self) -> None:
        self.has_arrived = True
        listener = self.connects_to()
        if listener is None:
            self._outgoing.send(Packet.REFUSE)
        else:
            listener.waiting.append(self)
            self._outgoing.send(Packet.ACCEPT)

    def refuse(self) -> None:
        """There is nobody at the other end."""
        self.is_refused = True
        self._break()

    def _break(self) -> None:
        self._machine.is_touched = True
        self._outgoing.drop()
        self._incoming.is_ended = self._outgoing.is_broken = True

    def reset(self) -> None:
        """The connection breaks for this end: what was on its way is lost, and what was not read, too."""
        self._incoming.drop()
        self._incoming.data.clear()
        self._break()

    def may_write(self) -> None:
        """There is room again."""
        self._machine.is_touched = True

    # State

    @property
    def is_ended(self) -> bool:
        """Whether the other end takes nothing more."""
        return self._outgoing.is_broken

    @property
    def is_over(self) -> bool:
        """Whether this end knows that the connection has ended."""
        return self._number < 0 or self.is_forgotten or self._outgoing.is_broken

    def ready_events(self) -> int:
        incoming, outgoing = self._incoming, self._outgoing
        if not self.is_connected and not outgoing.is_broken:
            return 0
        is_readable = incoming.data or incoming.is_ended
        is_writable = outgoing.is_broken or outgoing.room_bytes > 0
        return (READ if is_readable else 0) | (WRITE if is_writable else 0)

    # What the process asks for

    def recv(self, size_bytes: int, /) -> bytes:
        incoming = self._incoming
        if not incoming.data:
            if incoming.is_ended:
                return b""
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        count = self._machine.part_of(min(size_bytes, len(incoming.data)))
        taken = bytes(incoming.data[:count])
        del incoming.data[:count]
        if incoming.sender is not None:
            incoming.sender.may_write()
        return taken

    def recv_into(self, buffer: memoryview, /) -> int:
        taken = self.recv(len(buffer))
        buffer[: len(taken)] = taken
        return len(taken)

    def send(self, data: Buffer, /) -> int:
        outgoing = self._outgoing
        if outgoing.is_broken:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if outgoing.room_bytes <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        count = self._machine.part_of(min(len(data), outgoing.room_bytes))
        if count and not self._machine.is_dead:
            outgoing.send(bytes(memoryview(data)[:count]))
        return count

    def sendmsg(self, buffers: Sequence[Buffer], /) -> int:
        return self.send(b"".join(buffers))

    def close(self) -> None:
        if self._number < 0:
            return
        self._number = -1
        self._incoming.data.clear()
        if not (self._outgoing.is_broken or self.is_forgotten or self._machine.is_dead):
            self._outgoing.send(Packet.END)

    def forget(self) -> None:
        self.is_forgotten = True


def _nobody() -> None:
    """Nobody listens."""


class SimulatedListener:
    def __init__(self, machine: Host, network: SimulatedNetwork, port: int) -> None:
        self._machine = machine
        self._network = network
        self._port = port
        self._number = machine.next_number()
        self.waiting: deque[SimulatedSocket] = deque()

    def fileno(self) -> int:
        return self._number

    def port(self) -> int:
        return self._port

    def ready_events(self) -> int:
        return READ if self.waiting else 0

    def accept(self) -> tuple[SimulatedSocket, str]:
        if not self.waiting:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        accepted = self.waiting.popleft()
        return accepted, accepted.host

    def close(self) -> None:
        self._network.listeners.pop((self._machine.address, self._port), None)
        for sock in self.waiting:
            sock.close()
        self.waiting.clear()


class Connection(NamedTuple):
    near: SimulatedSocket  # of who made it
    far: SimulatedSocket

    @property
    def is_over(self) -> bool:
        return self.near.is_over and self.far.is_over


class SimulatedNetwork:
    def __init__(
        self,
        timeline: Timeline,
        random: Random,
        delays: Delays | None = None,
        sent: Callable[[str, str, bytes], object] | None = None,
    ) -> None:
        """`sent` is told of all data."""
        self.timeline = timeline
        self.delays = delays
        self.machines: dict[str, Host] = {}  # by their addresses
        self.listeners: dict[tuple[str, int], SimulatedListener] = {}
        self.stuck: dict[Stream, None] = {}
        self.sent = sent
        self._random = random
        self._blocked: set[tuple[str, str]] = set()
        self._without_power: set[str] = set()
        self._connections: list[Connection] = []

    def draw_delay(self) -> float | None:
        delays, random = self.delays, self._random
        if delays is None:
            return None
        if random.random() < delays.loss_odds:
            return random.uniform(delays.most_seconds, delays.most_lost_seconds)
        return random.uniform(delays.least_seconds, delays.most_seconds)

    # Connections

    def listen(self, machine: Host, port: int) -> SimulatedListener:
        if (machine.address, port) in self.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self.listeners[machine.address, port] = SimulatedListener(machine, self, port)
        return listener

    def connect(self, machine: Host, source: str, address: str, port: int) -> SimulatedSocket:
        """Begin to connect. A machine that is not there never answers."""
        there, back = Stream(self, source, address), Stream(self, address, source)
        near = SimulatedSocket(machine, back, there, address)
        near.is_connected = False
        far = SimulatedSocket(self.machines.get(address, machine), there, back, source)
        far.connects_to = lambda: self.listeners.get((address, port))
        far.has_arrived = False
        self._connections = [each for each in self._connections if not each.is_over]
        self._connections.append(Connection(near, far))
        if not machine.is_dead:
            there.send(Packet.CONNECT)
        return near

    def connections(self, address: str = "") -> list[Connection]:
        """Those of a machine, or all."""
        return [
            each
            for each in self._connections
            if not each.is_over and (not address or address in (each.near.host, each.far.host))
        ]

    # Faults

    def is_blocked(self, source: str, target: str) -> bool:
        return (source, target) in self._blocked or target in self._without_power

    def block(self, source: str, target: str) -> None:
        """Nothing arrives that way; the other way is another matter."""
        self._blocked.add((source, target))

    def unblock(self, source: str, target: str) -> None:
        self._blocked.discard((source, target))
        self._resume()

    def unblock_all(self) -> None:
        self._blocked.clear()
        self._resume()

    def _resume(self) -> None:
        for machine in self.machines.values():
            machine.is_touched = True
        for stream in list(self.stuck):
            if not self.is_blocked(stream.source, stream.target):
                del self.stuck[stream]
                stream.resume()

    def cut(self, connection: Connection) -> None:
        """It breaks for both ends, and neither knows what the other got."""
        for end in connection:
            self.timeline.after(self.draw_delay() or 0.0, end.reset)

    def close_all(self, address: str) -> None:
        """The kernel closes what a process has left open."""
        for (at, _), listener in list(self.listeners.items()):
            if at == address:
                listener.close()
        for end in self._ends(address):
            end.close()

    def _ends(self, address: str) -> list[SimulatedSocket]:
        """A machine's own ends of its connections, without those of which it has not heard yet."""
        ends = [near if far.host == address else far for near, far in self.connections(address)]
        return [end for end in ends if end.has_arrived]

    def power_off(self, address: str) -> None:
        """The machine forgets its connections, and nobody is told."""
        self._without_power.add(address)
        for end in self._ends(address):
            end.forget()

    def power_on(self, address: str) -> None:
        self._without_power.discard(address)
        self._resume()
