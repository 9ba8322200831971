"""One client's connection: frames in, answers out in the order of the requests, with bounds on both.

All connections receive into one large shared buffer. A frame that is complete there is handled in place, without a
copy. An incomplete frame, or one that must wait its turn, is copied into a buffer of the connection. A client that
sends large frames gets a buffer of the frame's size as soon as that is known, and the rest is received directly into
it. A handler must not keep a frame after it has returned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from ottla.broker.access.authorizer import ANONYMOUS, Principal
from ottla.broker.loop.loop import READ, WRITE, Loop
from ottla.broker.loop.system import Socket
from ottla.broker.network.acquaintance import Acquaintance
from ottla.broker.network.foreign import why_no_frame
from ottla.broker.network.limits import Limits
from ottla.broker.network.pieces import READ_BYTES, read_piece
from ottla.broker.network.receive_buffers import ReceiveBuffers
from ottla.broker.network.request_memory import RequestMemory, Share
from ottla.broker.network.slot import Slot
from ottla.broker.network.unsent_memory import UnsentMemory
from ottla.wire.parts import BUFFERS

try:
    import cython  # type: ignore[import-untyped]
except ModuleNotFoundError:
    from ottla.wire import octets as cython

if not cython.compiled:
    from ottla.wire.octets import read_size

_SIZE_BYTES = 4
MOST_PARTS = 64  # of one vectored write
JOINED_BYTES = 1 << 13  # up to here, copying the parts together is cheaper than a vectored write
LITTLE_BYTES = 1 << 10  # answers of no more are joined with their neighbours
SENDFILE_BYTES = 1 << 20
SMALL_BYTES = 4096  # a client that sends no more at once probably waits for the answer before it sends more
TURN_SECONDS = 0.002  # for the requests that one client sent at once; then it is the turn of others
FIRST_KEPT_BYTES = 1 << 16  # the first buffer of a large frame; it grows as more arrives


class Connection:
    """Calls `handle` for each frame, which takes a slot if it is answered, and `closed` once, with the reason."""

    def __init__(
        self,
        loop: Loop,
        sock: Socket,
        address: str,
        memory: ReceiveBuffers,
        limits: Limits,
        handle: Callable[[Connection, memoryview], None],
        closed: Callable[[Connection, str], None],
        listener: str = "",
        principal: Principal = ANONYMOUS,
        unsent_memory: UnsentMemory | None = None,
        request_memory: RequestMemory | None = None,
    ) -> None:
        """`unsent_memory`, `request_memory`: what all connections share."""
        self.socket = sock
        self.address = address  # of the client
        self.listener = listener  # the name of the one it came through
        self.principal = principal  # who is at the other end
        self._loop = loop
        self._memory = memory
        self._handle = handle
        self._closed = closed
        self._kept: memoryview | None = None  # bytes of an incomplete frame, or of frames that must wait
        self.received_bytes = 0  # how much of it is there
        self._kept_needed = 0  # how many there must be before they can be handled
        self._request_memory = request_memory = request_memory or RequestMemory(loop)
        self._share = Share(request_memory, self)
        self._waits_for_memory = 0  # how large a buffer it is to have next
        self._lent: memoryview | None = None  # the buffer they are in, if it must be given back
        self._handled: tuple[memoryview | None] | None = None  # what is lent of the memory that frames are handled in
        self._trusted_bytes = 0  # the largest frame so far: the next gets as much memory at once
        self._expects_large = False  # for the last one was
        self._slots: deque[Slot] = deque()
        self._most_slots = limits.max_requests_in_flight
        self._most_bytes = limits.max_frame_bytes
        self._most_unsent_bytes = limits.max_unsent_bytes
        self.expect_answer: Callable[[Slot], None] = self._slots.append
        """Give the next place in the order of answers."""
        self._unsent: deque[Any] = deque()
        self._unsent_bytes = 0
        self._unsent_file_bytes = 0  # of those: they are in no memory
        self._unsent_memory = unsent_memory or UnsentMemory()
        self._counted_bytes = 0  # of this connection, in that
        self._is_muted_until: float | None = None
        self._holds = 0
        self._is_stopped = False  # it is muted, held, ends or has ended: no more requests are handled
        self._sends_soon = False  # answers: at the end of the round, or when all frames at hand are handled
        self._events = READ
        self._received_at = self._sent_at = loop.now()
        self._calls_when_closed: dict[Callable[[], None], None] = {}
        self.is_open = True
        self.was_refused = False
        self.acquaintance = Acquaintance()
        self._last_words: str | None = None  # why it ends when all that was handled is answered
        loop.watch(sock, READ, self._ready)

    # Receiving

    def _ready(self, events: int) -> None:
        if not self.is_open:
            return  # closed by what was ready before it
        events &= self._events  # it may have been muted since
        try:
            if events & WRITE:
                self._send()
            if events & READ and self.is_open:
                self._receive()
        except Exception:
            self.close("the broker failed")  # or the same would fail in each round
            raise

    def _receive(self) -> None:
        kept = self._kept
        if kept is not None:
            target = kept[self.received_bytes :]
        elif self._expects_large:
            target = self._memory.shared[:_SIZE_BYTES]  # only the size: the rest is received into a buffer of its own
        elif self._request_memory.is_scarce:
            target = self._memory.shared[:FIRST_KEPT_BYTES]  # what is behind the first request may have to be kept
        else:
            target = self._memory.shared
        try:
            count = self.socket.recv_into(target)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(error.strerror or str(error))
            return
        self._received_at = self._loop.started
        if count == 0:
            self.close("the client closed it")
        elif kept is None:
            self._take_frames(target[:count])
            if self._lent is not None and not self._has_frames_kept_back():  # there is room for the rest of it
                self._receive()
            else:
                self._expects_large = False
                if count < SMALL_BYTES and self._kept is None:
                    self._loop.system.expect_soon()
        else:
            self.received_bytes += count
            if self.received_bytes == self._kept_needed:
                self._take_kept(kept)
            elif self.received_bytes == len(kept):
                self._keep(kept)
                if self._waits_for_memory:
                    self._update_events()

    def _take_kept(self, kept: memoryview) -> None:
        """Handle what was kept, now that it can be, and let go of its memory."""
        self._handled, self._kept, self._lent = (self._lent,), None, None
        pool, counted = self._share.received()
        self._expects_large = len(kept) > FIRST_KEPT_BYTES
        self._trusted_bytes = max(self._trusted_bytes, len(kept))
        try:
            self._take_frames(kept)
        finally:
            self._end_handling(self._memory.give_back)
            if counted:
                pool.give_back(counted)

    def leave_memory(self) -> bool:
        """Leave the memory of the frame that is being handled to its handler; False if others need it, too."""
        return self._end_handling(self._memory.leave)

    def _end_handling(self, settle: Callable[[memoryview], None]) -> bool:
        handled, self._handled = self._handled, None
        if handled is None:
            return False
        if handled[0] is not None:
            settle(handled[0])
        return True

    def _take_frames(self, data: memoryview) -> None:
        """Handle the whole frames in `data` as far as the limits let them in, and keep the rest."""
        position, end = 0, len(data)
        slots, most_slots, handle = self._slots, self._most_slots, self._handle
        self._sends_soon = True
        now, until = self._loop.now, 0.0
        while end - position >= _SIZE_BYTES:
            if (self._is_stopped or len(slots) >= most_slots or (slots and self._unsent)) and not self._makes_room():
                break
            size = read_size(data, position)
            start = position + _SIZE_BYTES
            stop = start + size
            if not 0 <= size <= self._most_bytes:
                self.refuse(why_no_frame(data[position:start], size, self._most_bytes))
                break
            if stop > end:
                break
            position = stop
            handle(self, data[start:stop])
            if position < end:
                if not until:
                    until = now() + TURN_SECONDS
                elif now() >= until:
                    self._loop.call_soon(self._resume)  # others are to be heard as well
                    break
        if self.is_open:
            self._sends_soon = False
            if position < end:
                self._keep(data[position:])
            if self._kept is not None or (slots and (self._is_next_answered() or self._is_full())):
                self._send_answers()

    def _is_next_answered(self) -> bool:
        slot = self._slots[0]
        return slot.parts is not None

    def _makes_room(self) -> bool:
        """Whether another request may be handled when the answers that are there have left."""
        self._collect_answers()
        return not self._is_full()

    def _keep(self, rest: memoryview) -> None:
        """Copy what could not be handled into a buffer with room for the rest of its frame.

        The room grows with what has come: a size alone, which costs a client nothing, costs no memory here. Only who
        sent as much before is lent room for a whole frame.
        """
        count, needed = len(rest), _SIZE_BYTES
        if count >= _SIZE_BYTES:
            needed += min(max(read_size(rest, 0), 0), self._most_bytes)
        self._kept_needed = max(needed, count)
        self.received_bytes, share = count, self._share
        if count == self._kept_needed or self._is_full():  # nothing is read now, perhaps for long: no memory for more
            share.keep(count)
            self._copy(rest, min(self._kept_needed, count + SMALL_BYTES))
            return
        size_bytes = min(self._kept_needed, max(2 * count, FIRST_KEPT_BYTES))
        if FIRST_KEPT_BYTES < self._kept_needed <= 2 * self._trusted_bytes:
            self._lent = share.lent(self._memory, self._kept_needed)
        if self._lent is not None:
            self._kept = self._lent[: self._kept_needed]
            self._kept[:count] = rest
        elif size_bytes <= FIRST_KEPT_BYTES or share.has_room(count, size_bytes, self._kept_needed):
            self._copy(rest, size_bytes)
        else:
            self._waits_for_memory = size_bytes
            if self._kept is not rest:
                self._copy(rest, count)

    def _copy(self, rest: memoryview, size_bytes: int) -> None:
        self._kept = memoryview(bytearray(size_bytes))
        self._kept[: len(rest)] = rest

    def grow(self) -> None:
        """There is memory for more of its request, which it has waited for."""
        size_bytes, self._waits_for_memory = self._waits_for_memory, 0
        self._share.grown()
        if self._kept is not None:
            self._copy(self._kept[: self.received_bytes], size_bytes)
        self._update_events()

    def _is_full(self) -> bool:
        """Whether the client has as much under way as it may have."""
        return (
            self._is_stopped
            or len(self._slots) >= self._most_slots
            or self._unsent_bytes >= self._most_unsent_bytes
            or (bool(self._unsent) and self._unsent_memory.is_scarce)
        )

    def _look_whether_stopped(self) -> None:
        is_muted = self._is_muted_until is not None
        self._is_stopped = is_muted or self._holds > 0 or self._last_words is not None or not self.is_open

    @property
    def is_stopped(self) -> bool:
        """Whether it is the broker that does not go on with its requests."""
        return self._is_stopped or len(self._slots) >= self._most_slots

    def hold(self, size_bytes: int = 0) -> None:
        """Handle no more requests until `release`, as often as it was held. `size_bytes`: of the one under way."""
        self._holds += 1
        self._is_stopped = True
        if size_bytes > FIRST_KEPT_BYTES:
            self._share.hold(size_bytes)

    def release(self) -> None:
        self._holds -= 1
        self._look_whether_stopped()
        if not self._holds:
            self._share.release()
            self._loop.call_soon(self._resume)

    def mute(self, seconds: float) -> None:
        """Read nothing from the client for a while, as a quota demands."""
        due = self._loop.now() + seconds
        if self._is_muted_until is None or due > self._is_muted_until:
            self._is_muted_until = due
            self._is_stopped = True
            self._loop.call_at(due, lambda: self._unmute(due))
            self._update_events()

    def _unmute(self, due: float) -> None:
        if self._is_muted_until == due:
            self._is_muted_until = None
            self._look_whether_stopped()
            self._resume()

    def _resume(self) -> None:
        """Go on with what was kept back while the client had too much under way."""
        kept = self._kept
        if self._has_frames_kept_back() and kept is not None and not self._is_full():
            self._take_kept(kept)
        if self.is_open:
            self._update_events()

    def _has_frames_kept_back(self) -> bool:
        return self._kept is not None and self.received_bytes == self._kept_needed

    # Answering

    def answered(self) -> None:
        """An answer is there. It leaves with the others of this round of the loop."""
        if not self._sends_soon:
            self._sends_soon = True
            self._loop.call_last(self._send_answers)

    def _send_answers(self) -> None:
        """Send the answers that are there and next in order."""
        if self.is_open:
            self._sends_soon = False
            self._collect_answers()
            self._send()

    def _collect_answers(self) -> None:
        slots, unsent = self._slots, self._unsent
        small: list[Any] = []  # answers in a piece, which leave as one
        while slots:
            slot = slots[0]
            parts = slot.parts
            if parts is None:
                break
            slots.popleft()
            if len(parts) == 1 and type(parts[0]) is bytes and len(parts[0]) <= LITTLE_BYTES:
                small.append(parts[0])
                continue
            if small:
                self._add_unsent(b"".join(small))
                small = []
            for part in parts:
                if not isinstance(part, BUFFERS):
                    if part.size_bytes <= READ_BYTES and not self._unsent_memory.is_scarce:
                        part = read_piece(part)
                    if not isinstance(part, BUFFERS):
                        self._unsent_file_bytes += part.size_bytes
                self._add_unsent(part)
        if small:
            joined = small[0] if len(small) == 1 else b"".join(small)
            self._unsent_bytes += len(joined)
            unsent.append(joined)

    def _add_unsent(self, part: Any) -> None:
        self._unsent_bytes += len(part) if isinstance(part, BUFFERS) else part.size_bytes
        self._unsent.append(part)

    def _send(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                sent = self._send_buffers() if isinstance(unsent[0], BUFFERS) else self._send_file()
                self._unsent_bytes -= sent
                self._sent_at = self._loop.started
        except BlockingIOError:
            pass
        except OSError as error:
            self.close(error.strerror or str(error))
            return
        if unsent or self._counted_bytes:
            self._count_memory(self._unsent_bytes - self._unsent_file_bytes)
        if self._last_words is not None and not unsent and not self._slots:
            self.close(self._last_words)
            return
        if self._kept is not None and self._has_frames_kept_back() and not self._is_full():
            self._loop.call_soon(self._resume)
        self._update_events()

    def _count_memory(self, held_bytes: int) -> None:
        self._unsent_memory.held_bytes += held_bytes - self._counted_bytes
        self._counted_bytes = held_bytes

    def _send_buffers(self) -> int:
        unsent = self._unsent
        if len(unsent) == 1:
            sent = self.socket.send(unsent[0])
            if sent == len(unsent[0]):
                unsent.clear()
                return sent
        else:
            buffers = []
            for part in islice(unsent, MOST_PARTS):
                if not isinstance(part, BUFFERS):
                    break
                buffers.append(part)
            size_bytes = sum(map(len, buffers))
            if size_bytes <= JOINED_BYTES:
                sent = self.socket.send(b"".join(buffers))
            else:
                sent = self.socket.sendmsg(buffers)
            if sent == size_bytes:
                if len(buffers) == len(unsent):
                    unsent.clear()
                for _ in range(min(len(buffers), len(unsent))):
                    unsent.popleft()
                return sent
        left = sent
        while left:
            part = unsent[0]
            if left < len(part):
                unsent[0] = memoryview(part)[left:]
                break
            left -= len(part)
            unsent.popleft()
        while unsent and isinstance(unsent[0], BUFFERS) and not len(unsent[0]):
            unsent.popleft()
        return sent

    def _send_file(self) -> int:
        part = self._unsent[0]
        count = min(part.size_bytes, SENDFILE_BYTES)
        sent = self._loop.system.send_file(self.socket, part.file, part.position, count) if count else 0
        self._unsent_file_bytes -= sent
        if sent == part.size_bytes:
            self._unsent.popleft()
        elif sent == 0:
            raise OSError("a file is shorter than it was")
        else:
            self._unsent[0] = part._replace(position=part.position + sent, size_bytes=part.size_bytes - sent)
        return sent

    def _update_events(self) -> None:
        is_deaf = self._is_full() or self._waits_for_memory or self._has_frames_kept_back()
        events = (WRITE if self._unsent else 0) | (0 if is_deaf else READ)
        if events == self._events:
            pass
        elif not self._events:
            self._loop.watch(self.socket, events, self._ready)
        elif events:
            self._loop.change(self.socket, events, self._ready)
        else:
            self._loop.forget(self.socket)
        self._events = events

    # The end

    def call_when_closed(self, callback: Callable[[], None]) -> None:
        """Call back when this connection is closed, unless `forget_call` comes first."""
        self._calls_when_closed[callback] = None

    def forget_call(self, callback: Callable[[], None]) -> None:
        self._calls_when_closed.pop(callback, None)

    def is_idle(self, seconds: float) -> bool:
        """Whether nothing was received or sent for so long, though it is the client's turn to send or to read."""
        is_waiting = (self._slots and not self._unsent) or self._is_muted_until is not None
        return not is_waiting and self._loop.now() - max(self._received_at, self._sent_at) > seconds

    def end(self, reason: str) -> None:
        """Handle no more requests, and close when those under way are answered."""
        self._last_words = reason
        self._is_stopped = True
        if self.is_open:
            self._send_answers()

    def refuse(self, reason: str) -> None:
        """Close it because of what the client did; the broker's log gets a line."""
        self.was_refused = True
        self.close(reason)

    def close(self, reason: str) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._is_stopped = self._sends_soon = True  # nothing more is handled or sent
        if self._events:
            self._loop.forget(self.socket)
        self.socket.close()
        self._slots.clear()
        self._unsent.clear()
        self._count_memory(0)
        self._kept = None
        self._share.close()
        if self._lent is not None:
            self._memory.give_back(self._lent)
            self._lent = None
        self._closed(self, reason)
        for callback in list(self._calls_when_closed):
            callback()
