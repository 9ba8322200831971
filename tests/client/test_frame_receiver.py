"""Frames come out as they went in, however the stream was cut."""

import ctypes
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.network.frame_receiver import FrameReceiver
from ottla.wire.errors import ProtocolError
from ottla.wire.parts import Buffer
from tests.client.scripted_broker import frame


def receive(receiver: FrameReceiver, data: bytes) -> list[Buffer]:
    frames: list[Buffer] = []
    while data:
        buffer = receiver.buffer()
        assert len(buffer) > 0
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        buffer.release()
        frames += receiver.received(count)
        data = data[count:]
    return frames


sizes = st.one_of(st.integers(0, 50), st.sampled_from([32 * 1024, 32 * 1024 + 1, 64 * 1024 - 4, 64 * 1024, 200_000]))


@given(st.lists(sizes, max_size=6), st.lists(st.integers(0, 400_000), max_size=6))
def test_every_cut_gives_the_same_frames(frame_sizes: list[int], cuts: list[int]) -> None:
    contents = [bytes([number]) * size for number, size in enumerate(frame_sizes)]
    stream = b"".join(map(frame, contents))
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    receiver = FrameReceiver()
    received = [one for start, end in pairwise(places) for one in receive(receiver, stream[start:end])]
    assert list(map(bytes, received)) == contents  # looked at when all are there: none was written over


@pytest.mark.parametrize("size_bytes", [-1, 101, 2**31 - 1])
def test_a_size_that_no_frame_has(size_bytes: int) -> None:
    receiver = FrameReceiver(largest_frame_bytes=100)
    with pytest.raises(ProtocolError, match=f"a frame of {size_bytes} bytes"):
        receive(receiver, struct.pack(">i", size_bytes))


def test_after_a_large_frame_there_is_room_for_one_like_it() -> None:
    receiver = FrameReceiver()
    stream = frame(b"x" * 1_000_000)
    assert len(receive(receiver, stream)) == 1
    assert len(receiver.buffer()) >= len(stream)


def test_a_frame_that_is_larger_than_any_before_is_not_waited_for_with_too_much_memory() -> None:
    receiver = FrameReceiver()
    receive(receiver, frame(b"x" * 40_000_000))
    assert len(receiver.buffer()) < 20_000_000


def test_memory_that_nobody_looks_at_is_used_again() -> None:
    receiver = FrameReceiver()
    places: set[int] = set()
    kept: list[Buffer] = []
    for number in range(12):
        frames = receive(receiver, frame(bytes([number]) * 1_000_000))
        kept = [*kept, *frames][-2:]  # one is still looked at while the next comes
        places.add(ctypes.addressof(ctypes.c_char.from_buffer(frames[0])))
        assert [bytes(one[:1]) + bytes(one[-1:]) for one in kept] == [
            bytes([each]) * 2 for each in range(max(number - 1, 0), number + 1)
        ]
    assert len(places) <= 5


def test_memory_is_let_go_of_when_small_frames_follow() -> None:
    receiver = FrameReceiver()
    for _ in range(3):
        receive(receiver, frame(b"x" * 1_000_000))
    receive(receiver, frame(b"small"))
    assert not receiver._given
