"""The short way of Produce and the long way: the same answers, and the same logs."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.connection import Connection
from ottla.broker.dispatch import Dispatch
from ottla.broker.produce_runs import MOST_BATCH_BYTES, MOST_SHAPES, ProduceRuns
from ottla.broker.quotas import client_entity
from ottla.log.files import DiskFile
from ottla.records.build import build_batch
from ottla.records.compression import LZ4, NONE
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.parts import Buffer
from tests.broker.opened_broker import OpenBroker, topic

NOW_MS = 1_700_000_000_000


class Client:
    """What a connection is to those who handle its frames."""

    def __init__(self) -> None:
        self.slots: list[Client.Slot] = []
        self.reasons: list[str] = []

    class Slot:
        def __init__(self) -> None:
            self.parts: list[Buffer] = []

        def answer(self, parts: list[Buffer]) -> None:
            self.parts = parts

    def expect_answer(self) -> Client.Slot:
        self.slots.append(Client.Slot())
        return self.slots[-1]

    def answer(self, frames: bytes) -> None:
        self.expect_answer().answer([frames])

    def close(self, reason: str) -> None:
        self.reasons.append(reason)

    refuse = close

    @property
    def received(self) -> bytes:
        return b"".join(bytes(part) for slot in self.slots for part in slot.parts)


class LongWay(Dispatch):
    """Learns nothing, so nothing is ever known."""

    def _learn(self, header: Any, request: Any, response: Any) -> None:
        pass


class Side:
    """A broker that handles the frames in one of the two ways."""

    def __init__(self, folder: Path, kind: type[Dispatch]) -> None:
        self.opened = OpenBroker(folder)
        self.broker = self.opened.broker
        self.broker.clock_ms = lambda: NOW_MS  # type: ignore[method-assign]
        self.opened.create(
            topic("plain"),
            topic("pairs", 2),
            topic("compacted", cleanup_policy="compact"),
            topic("stamped", message_timestamp_type="LogAppendTime"),
            topic("small", segment_bytes="1048576", max_message_bytes="300"),
        )
        self.dispatch = kind(self.broker)
        self.kind = kind

    def ids(self) -> dict[str, bytes]:
        return {topic.name: topic.topic_id for topic in self.broker.topics}

    def handle(self, frames: list[bytes]) -> Client:
        """As the loop does in a round that brings these frames."""
        client = Client()
        for frame in frames:
            if client.reasons:
                break  # it is closed
            self.dispatch.handle(cast(Connection, client), memoryview(bytearray(frame)))
        self.opened.loop.call_soon(lambda: None)
        self.opened.loop.run_once()
        return client

    def logs(self) -> dict[str, bytes]:
        return {
            partition.name: segment.file.read(0, segment.size_bytes) if segment.size_bytes else b""
            for topic in self.broker.topics
            for partition in topic.partitions
            for segment in [partition.log.active]
        }


class Asked(NamedTuple):
    """A request of one partition, as far as it may differ from others."""

    topic: str
    partition: int
    version: int
    acks: int
    client_id: str | None
    records: bytes | None
    transactional_id: str | None = None
    rest: bytes = b""

    def frame(self, correlation_id: int, ids: dict[str, bytes]) -> bytes:
        data = PartitionProduceData(index=self.partition, records=self.records)
        named = TopicProduceData(name=self.topic, topic_id=ids.get(self.topic, bytes(16)), partition_data=[data])
        request = ProduceRequest(
            transactional_id=self.transactional_id, acks=self.acks, timeout_ms=30_000, topic_data=[named]
        )
        parts = encode_request(correlation_id, self.client_id, request, self.version)
        return b"".join(cast("list[Buffer]", parts))[4:] + self.rest


def flipped(batch: bytes, position: int) -> bytes:
    at = position % len(batch)
    return batch[:at] + bytes([batch[at] ^ 1]) + batch[at + 1 :]


values = st.lists(st.binary(max_size=200), min_size=1, max_size=3)
times = st.sampled_from([NOW_MS, NOW_MS - 5, NOW_MS + 10**9, -1])
plain = st.builds(lambda taken, at: bytes(build_batch(taken, timestamp=at)), values, times)
keyed = st.builds(lambda taken: bytes(build_batch(taken, keys=[b"k"] * len(taken), timestamp=NOW_MS)), values)
large = st.builds(
    lambda fill, codec: bytes(build_batch([fill * MOST_BATCH_BYTES, b"x"], timestamp=NOW_MS, codec=codec)),
    st.sampled_from([b"a", b"b"]),
    st.sampled_from([NONE, NONE, LZ4]),
)
unusual = st.one_of(
    large,
    st.builds(flipped, large, st.integers(0, MOST_BATCH_BYTES)),
    st.builds(lambda taken: bytes(build_batch(taken, timestamp=NOW_MS, codec=LZ4)), values),
    st.builds(
        lambda sequence: bytes(
            build_batch([b"i"], timestamp=NOW_MS, producer_id=7, producer_epoch=0, base_sequence=sequence)
        ),
        st.integers(0, 2),
    ),
    st.builds(flipped, plain, st.integers(0, 500)),
    st.builds(lambda batch, cut: batch[:-cut], plain, st.integers(1, 30)),
    st.builds(lambda one, other: one + other, plain, plain),
    st.sampled_from([None, b"", b"\0" * 61]),
)
asked = st.builds(
    Asked,
    topic=st.sampled_from(["plain", "plain", "pairs", "compacted", "stamped", "small", "missing"]),
    partition=st.sampled_from([0, 0, 1, 2]),
    version=st.sampled_from([8, 9, 12, 12, 13]),
    acks=st.sampled_from([1, 1, -1, 0, 2]),
    client_id=st.sampled_from(["bench", "other", "", None]),
    records=st.one_of(plain, plain, keyed, unusual),
    transactional_id=st.sampled_from([None, None, None, "t"]),
    rest=st.sampled_from([b"", b"", b"", b"\0"]),
)
usual = st.builds(
    Asked,
    topic=st.sampled_from(["plain", "pairs"]),
    partition=st.just(0),
    version=st.sampled_from([12, 13]),
    acks=st.just(1),
    client_id=st.just("bench"),
    records=st.one_of(plain, plain, plain, unusual),
)
receives = st.lists(st.lists(st.one_of(usual, usual, asked), max_size=8), max_size=6)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    both = Side(tmp_path_factory.mktemp("short"), Dispatch), Side(tmp_path_factory.mktemp("long"), LongWay)
    yield both
    for side in both:
        side.opened.stop()


@given(receives, st.data())
def test_both_ways_answer_and_write_the_same(
    sides: tuple[Side, Side], receives: list[list[Asked]], data: st.DataObject
) -> None:
    numbers = itertools.count(data.draw(st.integers(-(2**31), 2**31 - 100)))
    for receive in receives:
        numbered = [(next(numbers), each) for each in receive]
        outcomes = []
        for side in sides:
            ids = side.ids()
            client = side.handle([each.frame(number, ids) for number, each in numbered])
            received = client.received
            for name, topic_id in ids.items():
                received = received.replace(topic_id, name.encode().ljust(16))
            outcomes.append((received, client.reasons, side.logs()))
        assert outcomes[0] == outcomes[1]


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=3))
def test_bytes_that_are_changed_anywhere(sides: tuple[Side, Side], changes: list[tuple[int, int]]) -> None:
    batch = bytes(build_batch([b"value"], timestamp=NOW_MS))
    frame = bytearray(Asked("plain", 0, 12, 1, "bench", batch).frame(1, {}))
    usual = bytes(frame)
    for position, byte in changes:
        frame[position % len(frame)] = byte
    outcomes = []
    for side in sides:
        clients = [side.handle([usual, usual]), side.handle([usual, bytes(frame), usual])]
        outcomes.append(([(client.received, client.reasons) for client in clients], side.logs()))
    assert outcomes[0] == outcomes[1]


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Side]:
    made = Side(tmp_path, Dispatch)
    yield made
    made.opened.stop()


def answers(received: bytes) -> list[ProduceResponse]:
    found = []
    while received:
        size = int.from_bytes(received[:4], "big")
        found.append(cast(ProduceResponse, decode_response(received[4 : 4 + size], ProduceRequest.api, 12)[1]))
        received = received[4 + size :]
    return found


def frames(count: int, topic: str = "plain", client_id: str = "bench") -> list[bytes]:
    batch = bytes(build_batch([b"value"], timestamp=NOW_MS))
    return [Asked(topic, 0, 12, 1, client_id, batch).frame(number, {}) for number in range(count)]


def test_requests_that_come_together_are_written_together(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    side.handle(frames(1))
    writes: list[int] = []
    append = DiskFile.append

    def count(file: DiskFile, data: Buffer) -> None:
        writes.append(len(data))
        append(file, data)

    monkeypatch.setattr(DiskFile, "append", count)
    client = side.handle(frames(10))
    assert len(writes) == 1
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers(client.received)]
    assert offsets == list(range(1, 11))
    assert side.broker.metrics.requests["Produce"] == 11


def test_a_run_that_cannot_be_written_is_refused_as_a_whole(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    side.handle(frames(1))

    def fail(_file: DiskFile, _data: Buffer) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(DiskFile, "append", fail)
        refused = answers(side.handle(frames(3)).received)
    codes = [answer.responses[0].partition_responses[0].error_code for answer in refused]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    taken = answers(side.handle(frames(1)).received)
    assert taken[0].responses[0].partition_responses[0].base_offset == 1


def one_frame(batch: bytes, topic: str = "plain", number: int = 0) -> bytes:
    return Asked(topic, 0, 12, 1, "bench", batch).frame(number, {})


LARGE = bytes(build_batch([b"v" * MOST_BATCH_BYTES], timestamp=NOW_MS))
PACKED = bytes(build_batch([b"v" * MOST_BATCH_BYTES], timestamp=NOW_MS, codec=LZ4))
NUMBERED = bytes(build_batch([b"v"], timestamp=NOW_MS, producer_id=7, producer_epoch=0, base_sequence=0))


def is_short(side: Side, frame: bytes) -> bool:
    assert side.dispatch._runs is not None
    return side.dispatch._runs.take(cast(Connection, Client()), memoryview(bytearray(frame)))


@pytest.mark.parametrize("batch", [LARGE, PACKED, NUMBERED])
@pytest.mark.parametrize("topic", ["plain", "stamped"])
def test_what_cannot_be_copied_to_others_goes_the_short_way_by_itself(side: Side, topic: str, batch: bytes) -> None:
    side.handle(frames(1, topic))
    assert is_short(side, one_frame(batch, topic))


def test_a_large_batch_is_written_from_where_it_was_received(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    side.handle(frames(1))
    received = memoryview(bytearray(one_frame(LARGE)))
    written: list[Buffer] = []
    append = DiskFile.append

    def note(file: DiskFile, data: Buffer) -> None:
        written.append(data)
        append(file, data)

    monkeypatch.setattr(DiskFile, "append", note)
    side.dispatch.handle(cast(Connection, Client()), received)
    assert isinstance(written[0], memoryview)
    assert written[0].obj is received.obj


def test_what_is_written_by_itself_overtakes_nobody(side: Side) -> None:
    side.handle(frames(1))
    small = frames(4)
    client = side.handle([small[0], small[1], one_frame(LARGE, number=7), small[2], small[3]])
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers(client.received)]
    assert offsets == [1, 2, 3, 4, 5]
    assert side.broker.metrics.requests["Produce"] == 6


def test_a_duplicate_is_told_where_it_went_the_first_time(side: Side) -> None:
    side.handle(frames(2))
    client = side.handle([one_frame(NUMBERED), *frames(1), one_frame(NUMBERED)])
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers(client.received)]
    assert offsets == [2, 3, 2]


@pytest.mark.parametrize("topic", ["plain", "stamped"])
def test_a_large_batch_that_cannot_be_written_is_refused(
    side: Side, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    side.handle(frames(1, topic))

    def fail(_file: DiskFile, _data: Buffer) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(DiskFile, "append", fail)
        refused = answers(side.handle([one_frame(LARGE, topic)]).received)
    assert refused[0].responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    taken = answers(side.handle([one_frame(LARGE, topic)]).received)
    assert taken[0].responses[0].partition_responses[0].base_offset == 1


def test_a_mistake_of_the_broker_closes_the_connection(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    side.handle(frames(1))

    def fail(_file: DiskFile, _data: Buffer) -> None:
        raise AssertionError("nobody thought of it")

    monkeypatch.setattr(DiskFile, "append", fail)
    client = side.handle([one_frame(LARGE)])
    assert client.reasons == ["the broker failed"]
    assert client.received == b""
    assert side.broker.metrics.failures == 1


def test_a_topic_that_is_made_anew_is_another(side: Side) -> None:
    side.handle(frames(2))
    side.broker.topics.remove("plain")
    unknown = answers(side.handle(frames(1)).received)
    assert unknown[0].responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_quota_that_is_set_holds_for_the_next_request(side: Side) -> None:
    side.handle(frames(2))
    runs = side.dispatch._runs
    assert runs is not None
    side.broker.quotas.set_limits(client_entity("bench"), {"producer_byte_rate": 1e9})
    assert not runs.take(cast(Connection, Client()), memoryview(bytearray(frames(1)[0])))


def test_short_ways_can_be_forgotten_and_nothing_is_overtaken(side: Side) -> None:
    side.handle(frames(1))
    client = Client()
    side.dispatch.handle(cast(Connection, client), memoryview(bytearray(frames(1)[0])))
    assert client.slots == []
    side.dispatch.forget_short_ways()
    assert len(answers(client.received)) == 1
    assert side.dispatch._runs is None
    assert len(answers(side.handle(frames(2)).received)) == 2


def test_what_is_remembered_is_bounded(side: Side) -> None:
    for number in range(MOST_SHAPES + 5):
        side.handle(frames(1, client_id=f"client-{number}"))
    runs = side.dispatch._runs
    assert isinstance(runs, ProduceRuns)
    assert len(runs._shapes) == 5
