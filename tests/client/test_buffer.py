"""Records from many threads into one buffer: none is lost, none comes twice, and there is a limit."""

import linecache
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

from ottla.client.errors import BufferFull, InvalidRecord
from ottla.client.producer.buffer import Buffer
from ottla.client.producer.chunk import Chunk
from ottla.client.producer.sending import Sending
from ottla.client.producer.sent import Sent


class Sends(Sending):
    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        buffer.begin(lambda: None)


class Blocks(Sends):
    def _wait_for_room(self) -> None:
        self._buffer.wait_for_room(30)


def place_of(sent: Sent) -> tuple[Chunk, int]:
    return sent._chunk, sent._index


def unpacked(chunks: list[Chunk]) -> list[Chunk]:
    for chunk in chunks:
        chunk.unpack()
    return chunks


def drain(buffer: Buffer) -> list[Chunk]:
    buffer.close_all()
    return unpacked(buffer.collect(time.monotonic())[0])


def test_what_threads_send_while_chunks_are_closed_is_all_there_once_and_each_threads_in_order() -> None:
    buffer = Buffer(1 << 40, 2_000)
    sends = Sends(buffer)
    chunks: list[Chunk] = []
    switch_interval = sys.getswitchinterval()
    is_over = threading.Event()

    def send(thread: int) -> None:
        for number in range(3_000):
            if number % 3:
                sent = sends.send("t", b"%d-%d" % (thread, number))
            else:
                sent = sends.send("t", b"%d-%d" % (thread, number), key=b"k")
            assert sent._index < 3_000

    def close() -> None:
        while not is_over.is_set():
            buffer.close_all()
            chunks.extend(unpacked(buffer.collect(time.monotonic())[0]))

    try:
        sys.setswitchinterval(1e-6)  # threads change places wherever they can
        with ThreadPoolExecutor(5) as pool:
            closing = pool.submit(close)
            for sending in [pool.submit(send, thread) for thread in range(4)]:
                sending.result()
            is_over.set()
            closing.result()
    finally:
        sys.setswitchinterval(switch_interval)
    chunks += drain(buffer)
    values = [value for chunk in chunks for value in chunk.values]
    for thread in range(4):
        mine = [value for value in values if value is not None and value.startswith(b"%d-" % thread)]
        assert mine == [b"%d-%d" % (thread, number) for number in range(3_000)]
    assert len(values) == 12_000
    for chunk in chunks:
        for index, value in enumerate(chunk.values):
            is_keyed = int((value or b"").split(b"-")[1]) % 3 == 0
            assert (chunk.keys is not None and chunk.keys[index] == b"k") is is_keyed


class Racing(dict[str, Chunk]):
    """Between finding a chunk and filling it, the sender comes and takes it; if told to, it is done with it, too."""

    def __init__(self, buffer: Buffer, is_settled: bool) -> None:
        super().__init__(buffer.filling)
        self.buffer = buffer
        self.is_settled = is_settled
        self.is_over = False
        self.taken: list[Chunk] = []
        self.seen: list[bytes | None] = []

    def get(self, topic: str, default: object = None) -> Chunk | None:  # type: ignore[override]
        chunk = super().get(topic)
        if chunk is not None and not self.is_over:
            self.is_over = True
            self.taken += drain(self.buffer)
            self.seen += chunk.values
            if self.is_settled:
                chunk.settle(range(chunk.count))
        return chunk


class ClosedBehind(list[Any]):
    """Of a chunk that is closed as soon as the next record is in it."""

    def __init__(self, buffer: Buffer, records: list[Any]) -> None:
        super().__init__(records)
        self._buffer = buffer

    def append(self, record: Any) -> None:
        super().append(record)
        self._buffer.close_all()


@pytest.mark.parametrize("key", [None, b"key"])
def test_what_a_chunk_took_of_the_buffer_it_gives_back_whenever_it_is_closed(key: bytes | None) -> None:
    buffer = Buffer(1 << 20, 1 << 20)
    sends = Sends(buffer)
    chunk = sends.send("t", b"first")._chunk
    chunk.records = ClosedBehind(buffer, chunk.records)
    assert place_of(sends.send("t", b"second", key=key)) == (chunk, 1)
    [chunk] = drain(buffer)
    assert buffer.used_bytes == chunk.size_bytes > len(b"firstsecond")
    buffer.release(chunk.size_bytes)
    assert buffer.used_bytes == 0


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_chunk_that_is_taken_under_the_callers_hands_loses_nothing(is_settled: bool) -> None:
    buffer = Buffer(1 << 20, 1 << 20)
    sends = Sends(buffer)
    first = sends.send("t", b"first")
    racing = buffer.filling = Racing(buffer, is_settled)
    second = sends.send("t", b"second")
    assert [one._chunk for one in (first, second)] == [*racing.taken, *drain(buffer)]
    assert [*racing.seen, *second._chunk.values] == [b"first", b"second"]


def test_the_handle_is_that_of_its_record() -> None:
    buffer = Buffer(1 << 20, 1 << 20)
    sends = Sends(buffer)
    handles = [sends.send("t", b"%d" % number, partition=number % 2 or None) for number in range(50)]
    [chunk] = drain(buffer)
    for number, (owner, index) in enumerate(map(place_of, handles)):
        assert owner is chunk
        assert chunk.values[index] == b"%d" % number
        assert chunk.partitions is not None
        assert chunk.partitions[index] == (number % 2 or None)


def test_a_full_buffer_refuses_or_makes_wait() -> None:
    buffer = Buffer(1_000, 500)
    sends, blocks = Sends(buffer), Blocks(buffer)
    with pytest.raises(BufferFull, match="1,000 is the limit") as raised:
        _ = [sends.send("t", bytes(100)) for _ in range(100)]
    assert raised.value.is_retriable
    assert "buffer_bytes" in raised.value.advice
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(blocks.send, "t", b"patient")
        for chunk in drain(buffer):
            buffer.release(chunk.size_bytes)
        waiting.result(30)
    [chunk] = drain(buffer)
    assert chunk.values == [b"patient"]


def test_what_is_refused_is_refused_at_once() -> None:
    buffer = Buffer(1_000, 500)
    sends = Sends(buffer)
    with pytest.raises(InvalidRecord, match="a value is bytes, not str"):
        sends.send("t", "text")
    with pytest.raises(InvalidRecord, match="a key is bytes, not int"):
        sends.send("t", b"", key=7)
    with pytest.raises(InvalidRecord, match="a topic has up to 249"):
        sends.send("", b"")
    with pytest.raises(InvalidRecord, match="not negative: -1"):
        sends.send("t", b"", timestamp_ms=-1)
    sends.send("t", b"before")
    buffer.refuse(RuntimeError("not now"))
    with pytest.raises(RuntimeError, match="not now"):
        sends.send("t", b"")
    assert [chunk.values for chunk in drain(buffer)] == [[b"before"]]
    with pytest.raises(RuntimeError, match="inside `with`"):
        Sending.send(_Unopened(), "t", b"")


class _Unopened(Sending):
    _buffer = Buffer(1, 1)


def test_what_may_change_is_copied() -> None:
    buffer = Buffer(1_000, 500)
    value = bytearray(b"now")
    Sends(buffer).send("t", value)
    value[:] = b"too late"
    assert drain(buffer)[0].values == [b"now"]


@pytest.mark.parametrize("stamps_each", [False, True])
def test_a_record_without_a_time_gets_that_of_its_chunk_or_its_own(stamps_each: bool) -> None:
    buffer = Buffer(1_000, 500, stamps_each=stamps_each)
    sends = Sends(buffer)
    before_ms = time.time_ns() // 1_000_000
    sends.send("t", b"")
    sends.send("t", b"", timestamp_ms=0)
    [chunk] = drain(buffer)
    assert chunk.timestamps is not None
    assert chunk.timestamps[1] == 0
    assert before_ms <= chunk.timestamps[0] <= time.time_ns() // 1_000_000


def test_a_chunk_that_is_closed_before_its_first_record_has_none() -> None:
    chunk = Chunk("t", threading.Lock(), 0)
    chunk.has_more = True
    chunk.unpack()
    assert chunk.values == []


def test_many_topics_that_wait_to_be_sent_stay_near_the_limit_too() -> None:
    """Nobody collects: each topic has a chunk that is not full, and the records of all of them take memory."""
    buffer = Buffer(1_000_000, 500_000)
    sends = Sends(buffer)
    numbers = count()

    def fill() -> None:
        while True:
            sends.send(f"t{next(numbers) % 200}", b"x" * 1_000)

    with pytest.raises(BufferFull):
        fill()
    assert 900 < next(numbers) < 5_000


class Interrupts:
    """A Ctrl-C at a line of these files, counted from 1 in the order in which they are run."""

    FILES = ("producer/buffer.py", "producer/chunk.py", "producer/sending.py")

    def __init__(self, at: int) -> None:
        self._left = at

    @property
    def has_come(self) -> bool:
        return self._left <= 0

    def __call__(self, frame: Any, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.endswith(self.FILES):
            return None
        # Python looks for signals after calls; between the end of a block and the release of its lock it does not.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not line.startswith("with "):
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt
        return self


def test_a_sender_that_is_interrupted_anywhere_loses_and_doubles_nothing() -> None:
    for at in count(1):
        buffer = Buffer(10_000, 100)
        sends = Sends(buffer)
        returned: list[bytes] = []
        interrupts = Interrupts(at)
        before = sys.gettrace()
        sys.settrace(interrupts)
        try:
            for number in range(5):
                sends.send("t", b"%d" % number * 50)
                returned.append(b"%d" % number * 50)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        sends.send("t", b"the next one")
        collected = [*buffer.collect(time.monotonic() - 60)[0], *drain(buffer)]
        values = [value for chunk in unpacked(collected) for value in chunk.values]
        assert len(set(values)) == len(values), at
        assert [value for value in values if value in returned] == returned, at
        assert values[-1] == b"the next one", at
        assert set(buffer.unsettled()) <= set(collected), at  # for nothing else would `flush` be told
        if not interrupts.has_come:
            break
    assert at > 50
