"""Connections: frames and answers over real sockets, in order and within bounds."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.loop.loop import Loop
from ottla.broker.network.connection import Connection
from ottla.broker.network.limits import Limits
from ottla.broker.network.pieces import READ_BYTES
from ottla.broker.network.receive_buffers import MOST_LENT_BYTES, RECEIVE_BYTES, ReceiveBuffers
from ottla.broker.network.request_memory import RequestMemory
from ottla.broker.network.slot import Slot
from ottla.broker.network.unsent_memory import UnsentMemory


class Piece(NamedTuple):
    """Bytes of a file, as an answer may hold them."""

    file: tempfile._TemporaryFileWrapper[bytes]
    position: int
    size_bytes: int

    def read(self) -> bytes:
        return os.pread(self.file.fileno(), self.size_bytes, self.position)


class Server:
    """One end of a socket pair with a connection on it; the test is the other end."""

    def __init__(
        self,
        limits: Limits | None = None,
        unsent_memory: UnsentMemory | None = None,
        request_memory: RequestMemory | None = None,
        loop: Loop | None = None,
    ) -> None:
        self.loop = loop or Loop()
        self.client, served = socket.socketpair()
        self.client.setblocking(False)
        served.setblocking(False)
        self.frames: list[bytes] = []
        self.slots: list[Slot] = []
        self.reasons: list[str] = []
        self.echoes = False
        self.memory = ReceiveBuffers()
        self.answer: list[Any] | None = None  # to all requests
        self.connection = Connection(
            self.loop,
            served,
            "",
            self.memory,
            limits or Limits(),
            self.handle,
            self.closed,
            unsent_memory=unsent_memory,
            request_memory=request_memory,
        )

    def handle(self, connection: Connection, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        slot = Slot(connection)
        connection.expect_answer(slot)
        self.slots.append(slot)
        if self.answer is not None:
            slot.answer(list(self.answer))
        elif self.echoes:
            slot.answer([bytes(frame)])

    def closed(self, _connection: Connection, reason: str) -> None:
        self.reasons.append(reason)

    def turn(self, rounds: int = 5) -> None:
        for _ in range(rounds):
            self.loop.call_soon(lambda: None)
            self.loop.run_once()

    def send(self, data: bytes) -> None:
        """Send all, letting the server read in between."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.client.send(view) :]
            except BlockingIOError:
                self.turn(1)
        self.turn()

    def receive(self, size_bytes: int) -> bytes:
        data = bytearray()
        for _ in range(10_000):
            try:
                data += self.client.recv(size_bytes - len(data))
            except BlockingIOError:
                self.turn(1)
            if len(data) == size_bytes:
                break
        return bytes(data)

    def close(self) -> None:
        self.connection.close("the test is over")
        self.client.close()
        self.slots.clear()
        self.loop.close()


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def test_frames_that_come_together_are_handled_one_by_one(server: Server) -> None:
    server.send(framed(b"one", b"", b"three"))
    assert server.frames == [b"one", b"", b"three"]


@settings(max_examples=30)
@given(st.lists(st.integers(0, 3000).map(lambda size: bytes([size % 256]) * size), max_size=8), st.data())
def test_frames_cut_anywhere_are_put_together(bodies: list[bytes], data: st.DataObject) -> None:
    stream = framed(*bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    with contextlib.closing(Server()) as server:
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            server.send(stream[start:end])
        assert server.frames == bodies


def test_a_frame_larger_than_the_buffer_arrives_whole(server: Server) -> None:
    body = bytes(range(256)) * (RECEIVE_BYTES // 100)
    server.send(framed(b"before", body, b"after"))
    assert server.frames == [b"before", body, b"after"]


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from([0, 1, 3, 100, 65_532, 65_536, 70_000, 140_000, 300_000]), max_size=8),
    st.lists(st.integers(0, 10**6), max_size=8),
)
def test_large_frames_among_small_ones(sizes: list[int], cuts: list[int]) -> None:
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    stream = framed(*bodies)
    places = sorted(cut % (len(stream) + 1) for cut in cuts)
    with contextlib.closing(Server()) as server:
        for start, end in zip([0, *places], [*places, len(stream)], strict=True):
            server.send(stream[start:end])
        server.turn(4 * len(sizes) + len(cuts))
        assert server.frames == bodies
        assert server.memory._lent_bytes == 0


def test_large_frames_one_after_another_share_a_buffer(server: Server) -> None:
    for number in range(5):
        stream = framed(bytes([number]) * 200_000)
        server.send(stream[:1000])
        server.send(stream[1000:])
    assert [frame[0] for frame in server.frames] == [0, 1, 2, 3, 4]
    assert len(server.memory._free) == 1


@pytest.mark.parametrize("between", [100, 70_000])
def test_who_sent_a_large_frame_is_lent_as_much_again_whatever_came_since(server: Server, between: int) -> None:
    large = framed(bytes(500_000))
    server.send(large[:1000])
    assert server.memory._lent_bytes == 0
    server.send(large[1000:])
    smaller = framed(bytes(between))
    for _ in range(3):
        server.send(smaller[:50])
        server.send(smaller[50:])
    server.send(large[:1000])
    assert server.memory._lent_bytes > 0
    server.send(large[1000:])
    assert [len(frame) for frame in server.frames] == [500_000, between, between, between, 500_000]
    assert server.memory._lent_bytes == 0


def test_memory_on_loan_is_given_back_when_the_connection_ends(server: Server) -> None:
    stream = framed(bytes(200_000))
    server.send(stream[:1000])
    server.send(stream[1000:])
    server.send(stream[:1000])
    assert server.memory._lent_bytes > 0
    server.client.close()
    server.turn()
    assert server.memory._lent_bytes == 0


def test_no_more_is_lent_than_there_may_be() -> None:
    memory = ReceiveBuffers()
    lent = []
    while (buffer := memory.lend(5_000_000)) is not None:
        lent.append(buffer)
    assert MOST_LENT_BYTES - 5_300_000 < sum(map(len, lent)) <= MOST_LENT_BYTES
    for buffer in lent:
        memory.give_back(buffer)
    assert memory.lend(5_000_000) is not None


def test_answers_leave_in_the_order_of_the_requests(server: Server) -> None:
    server.send(framed(b"a", b"b", b"c"))
    server.slots[2].answer([b"C"])
    server.slots[1].answer([b"B", b"b"])
    server.turn()
    with pytest.raises(BlockingIOError):
        server.client.recv(10)
    server.slots[0].answer([b"A"])
    assert server.receive(4) == b"ABbC"


def test_no_parts_means_no_answer(server: Server) -> None:
    server.send(framed(b"a", b"b"))
    server.slots[0].answer([])
    server.slots[1].answer([b"B"])
    assert server.receive(1) == b"B"


def test_pieces_of_files_are_sent_between_bytes(server: Server) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"0123456789" * 500_000)
        file.flush()
        server.send(framed(b"a"))
        server.slots[0].answer([b"<", Piece(file, 3, 4_000_000), b"|", Piece(file, 0, 5), b">"])
        answer = server.receive(1 + 4_000_000 + 1 + 5 + 1)
    assert answer == b"<" + (b"0123456789" * 500_000)[3:4_000_003] + b"|01234>"


def test_a_short_piece_of_a_file_leaves_with_the_bytes_around_it(server: Server) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"0123456789")
        file.flush()
        server.send(framed(b"a"))
        server.slots[0].answer([b"<", Piece(file, 2, 3), b"|", Piece(file, 0, 5), b">"])
        server.turn(1)
    assert server.client.recv(100) == b"<234|01234>"


@pytest.mark.parametrize("size_bytes", [11, READ_BYTES + 1])
def test_a_file_that_is_shorter_than_it_was_ends_the_connection(server: Server, size_bytes: int) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"0123456789")
        file.flush()
        server.send(framed(b"a"))
        server.slots[0].answer([b"<", Piece(file, 0, size_bytes)])
        server.turn()
    assert server.reasons == ["a file is shorter than it was"]


def test_a_file_that_cannot_be_read_ends_the_connection(server: Server) -> None:
    class Unreadable(Piece):
        def read(self) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with tempfile.NamedTemporaryFile() as file:
        server.send(framed(b"a"))
        server.slots[0].answer([Unreadable(file, 0, 10)])
        server.turn()
    assert server.reasons == ["a file is shorter than it was"]


def test_many_small_parts_are_sent(server: Server) -> None:
    server.send(framed(b"a"))
    server.slots[0].answer([b"%03d" % number for number in range(300)])
    assert server.receive(900) == b"".join(b"%03d" % number for number in range(300))


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_frame_size_out_of_bounds_closes_the_connection(size: int) -> None:
    server = Server(Limits(max_frame_bytes=1000))
    server.send(framed(b"fine"))
    server.client.send(struct.pack(">i", size))
    server.turn()
    assert server.frames == [b"fine"]
    assert server.reasons == [f"a frame of {size} bytes is not within 0 and 1000"]
    server.close()


def test_an_announced_frame_takes_no_memory_before_it_comes_in_part() -> None:
    server = Server()
    server.send(struct.pack(">i", 100_000_000)[:3])
    assert server.connection._kept is not None
    assert len(server.connection._kept) == 4
    server.close()


def test_with_too_much_under_way_nothing_more_is_read_until_answers_are_given() -> None:
    server = Server(Limits(max_requests_in_flight=2))
    server.send(framed(b"a", b"b", b"c", b"d", b"e"))
    assert server.frames == [b"a", b"b"]
    server.slots[0].answer([b"A"])
    server.turn()
    assert server.frames == [b"a", b"b", b"c"]
    server.slots[1].answer([b"B"])
    server.slots[2].answer([b"C"])
    server.turn()
    assert server.frames == [b"a", b"b", b"c", b"d", b"e"]
    server.close()


@pytest.mark.parametrize("why", ["held", "muted"])
def test_large_frames_that_come_together_wait_while_one_is_under_way(server: Server, why: str) -> None:
    large = [bytes([number]) * 100_000 for number in range(4)]
    server.echoes = True
    server.send(framed(large[0])[:70_000])  # so that the client is known to send large frames
    server.send(framed(large[0])[70_000:])
    server.send(framed(b"small"))
    assert server.receive(100_005) == large[0] + b"small"
    if why == "held":
        server.connection.hold()
    else:
        heard_from = server.loop.now() + 0.1
        server.connection.mute(0.1)
    server.client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    server.send(framed(*large[1:]))
    assert server.reasons == []
    if why == "held":
        server.connection.release()
    else:
        while server.loop.now() < heard_from:
            server.turn(1)
    assert server.receive(300_000) == b"".join(large[1:])


def test_thousands_of_requests_at_once_are_all_answered() -> None:
    server = Server(Limits(max_requests_in_flight=3))
    server.echoes = True
    bodies = [b"%06d" % number for number in range(20_000)]
    server.send(framed(*bodies))
    assert server.receive(6 * 20_000) == b"".join(bodies)
    server.close()


def test_a_slow_reader_holds_back_only_itself_and_within_bounds() -> None:
    server = Server(Limits(max_unsent_bytes=1_000_000, max_requests_in_flight=1000))
    server.echoes = True
    body = bytes(100_000)
    sent = 0
    stream = framed(body)
    for _ in range(100):
        try:
            server.client.send(stream)
            sent += 1
        except BlockingIOError:
            break
        server.turn(2)
    handled = len(server.frames)
    assert handled < 100
    assert server.connection._unsent_bytes < 2_000_000
    server.close()


def test_slow_readers_have_a_bound_together() -> None:
    """Small requests with large answers: each of them would hold 64 MB."""
    unsent = UnsentMemory(1_000_000)
    servers = [Server(unsent_memory=unsent) for _ in range(10)]
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(range(256)) * (READ_BYTES // 256))
        file.flush()
        for server in servers:
            server.answer = [b"head", Piece(file, 0, READ_BYTES)]
            server.send(framed(*[b"a"] * 500))
        assert unsent.held_bytes < 10_000_000  # one turn of one of them; all answers have 82 MB
        fast = Server(unsent_memory=unsent)
        fast.echoes = True
        fast.send(framed(b"a", b"b"))
        assert fast.receive(2) == b"ab", "who reads is served"
        whole = (b"head" + bytes(range(256)) * (READ_BYTES // 256)) * 500
        for server in servers[:-1]:
            assert server.receive(len(whole)) == whole
        servers[-1].connection.close("gone")
        assert unsent.held_bytes == 0
    for server in (*servers, fast):
        server.close()


def test_a_muted_connection_reads_nothing_until_its_time_is_over(server: Server) -> None:
    heard_from = server.loop.now() + 0.05
    server.connection.mute(0.05)
    server.send(framed(b"a"))
    while not server.frames:
        server.loop.run_once()
    assert server.loop.now() >= heard_from
    assert server.frames == [b"a"]


def test_the_client_that_leaves_is_noticed(server: Server) -> None:
    server.client.close()
    server.turn()
    assert server.reasons == ["the client closed it"]


def test_an_answer_to_a_closed_connection_is_dropped(server: Server) -> None:
    server.send(framed(b"a"))
    server.connection.close("enough")
    server.slots[0].answer([b"A"])
    assert server.reasons == ["enough"]


def test_a_connection_is_idle_when_nothing_came_and_nothing_is_under_way(server: Server) -> None:
    assert not server.connection.is_idle(10)
    server.send(framed(b"a"))
    assert not server.connection.is_idle(-1)  # an answer is still due
    server.slots[0].answer([b"A"])
    server.turn()
    assert server.connection.is_idle(-1)
    server.connection.mute(5)
    assert not server.connection.is_idle(-1)


def test_who_does_not_read_its_answers_is_idle_and_who_reads_slowly_is_not(server: Server) -> None:
    server.send(framed(b"a") + framed(b"b"))
    server.slots[0].answer([bytes(32 << 20)])
    server.turn()
    server.connection.is_idle(-1)
    assert server.connection.is_idle(-1)  # the second request is under way, and its answer will not be read
    server.client.recv(1 << 20)
    server.turn()
    assert not server.connection.is_idle(10)


def test_who_waits_for_a_client_is_told_that_it_left(server: Server) -> None:
    told: list[str] = []

    def leave() -> None:
        told.append("left")

    def stay() -> None:
        told.append("stayed")

    server.connection.call_when_closed(leave)
    server.connection.call_when_closed(stay)
    server.connection.forget_call(stay)
    server.client.close()
    server.turn()
    assert told == ["left"]


def test_who_sends_little_may_send_the_next_soon(server: Server) -> None:
    expected: list[bool] = []
    server.loop.system.expect_soon = lambda: expected.append(True)  # type: ignore[method-assign]
    server.send(framed(b"one"))
    assert expected == [True]
    server.send(framed(bytes(10_000)))
    server.send(framed(b"half")[:-1])
    assert expected == [True]


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (bytes.fromhex("160301013a010001360303"), "the client speaks TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "the client speaks HTTP"),
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes"),
    ],
)
def test_what_is_no_frame_is_named(server: Server, sent: bytes, told: str) -> None:
    server.send(sent)
    assert [reason[: len(told)] for reason in server.reasons] == [told]
