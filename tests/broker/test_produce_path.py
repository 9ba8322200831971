"""Produce with and without the wire's fast path: the same answers, logs, metrics and quotas; how writes are joined."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.dispatch import Dispatch
from ottla.broker.network.acquaintance import Acquaintance
from ottla.broker.network.connection import Connection
from ottla.broker.network.slot import Slot
from ottla.broker.quotas.quotas import PRODUCER_BYTE_RATE, client_entity
from ottla.log.files import DiskFile
from ottla.records.build import build_batch
from ottla.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from ottla.replica.writer import MOST_GATHERED_BATCH_BYTES
from ottla.wire.errors import ErrorCode
from ottla.wire.fast_path import MessageReader, MessageWriter
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.parts import Buffer
from ottla.wire.reader import generate_reader
from ottla.wire.schema import Reader, Writer
from ottla.wire.writer import generate_writer
from tests.broker.opened_broker import OpenBroker, topic

NOW_MS = 1_700_000_000_000
TRANSACTIONAL_PRODUCER_ID = 9


class Client:
    """What a connection is to those who handle its frames."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.reasons: list[str] = []
        self.muted: list[float] = []
        self.is_open = True
        self.acquaintance = Acquaintance()

    def expect_answer(self, slot: Slot) -> None:
        self.slots.append(slot)

    def answered(self) -> None:
        pass

    def close(self, reason: str) -> None:
        self.reasons.append(reason)
        self.is_open = False

    refuse = close

    def mute(self, seconds: float) -> None:
        self.muted.append(seconds)

    @property
    def received(self) -> bytes:
        return b"".join(bytes(cast("Buffer", part)) for slot in self.slots for part in slot.parts or ())


def out_of_room(_file: DiskFile, _data: Buffer) -> None:
    raise OSError(errno.ENOSPC, "full")


class Messages:
    """How Produce is read and written: by generated functions, and by the fast path before them or not."""

    def __init__(self, *, is_fast: bool) -> None:
        self.readers: dict[int, Reader] = {}
        self.writers: dict[int, Writer] = {}
        for version in range(ProduceRequest.api.least_served, ProduceRequest.api.highest + 1):
            read, write = generate_reader(ProduceRequest, version), generate_writer(ProduceResponse, version)
            self.readers[version] = MessageReader(ProduceRequest, version, generate_reader) if is_fast else read
            self.writers[version] = MessageWriter(ProduceResponse, version, generate_writer) if is_fast else write

    @contextmanager
    def used(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ProduceRequest, "readers", self.readers)
            patched.setattr(ProduceResponse, "writers", self.writers)
            yield


class Side:
    """A broker that handles frames with or without the fast path."""

    def __init__(self, folder: Path, *, is_fast: bool = True) -> None:
        self.opened = OpenBroker(folder)
        self.broker = self.opened.broker
        self.broker.clock_ms = self.broker.steady_ms = lambda: NOW_MS  # type: ignore[method-assign]
        self.opened.create(
            topic("plain"),
            topic("pairs", 2),
            topic("compacted", cleanup_policy="compact"),
            topic("stamped", message_timestamp_type="LogAppendTime"),
            topic("small", segment_bytes="1048576", max_message_bytes="300"),
        )
        self.dispatch = Dispatch(self.broker)
        self._messages = Messages(is_fast=is_fast)
        self._seen: dict[tuple[str, int], int] = {}

    def limit(self, *, is_limited: bool) -> None:
        """With a quota of any client, the time of all is measured."""
        self.broker.quotas.set_limits(client_entity("throttled"), {PRODUCER_BYTE_RATE: 100.0} if is_limited else {})

    def ids(self) -> dict[str, bytes]:
        return {known.name: known.topic_id for known in self.broker.topics}

    def handle_on_full_disk(self, frames: list[bytes]) -> Client:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(DiskFile, "append", out_of_room)
            return self.handle(frames)

    def handle(self, frames: list[bytes]) -> Client:
        """As the loop does in a round that brings these frames."""
        client = Client()
        with self._messages.used():
            for frame in frames:
                if client.reasons:
                    break  # it is closed
                self.dispatch.handle(cast(Connection, client), memoryview(bytearray(frame)))
            self.opened.loop.call_soon(lambda: None)
            self.opened.loop.run_once()
        return client

    def logs(self) -> dict[tuple[str, int], bytes]:
        """What was written to each segment since this was last asked."""
        added = {}
        for known in self.broker.topics:
            for partition in known.partitions:
                for segment in partition.log.segments:
                    place = partition.name, segment.base_offset
                    seen = self._seen.get(place, 0)
                    if segment.size_bytes > seen:
                        added[place] = segment.file.read(seen, segment.size_bytes - seen)
                        self._seen[place] = segment.size_bytes
        return added

    def metrics(self) -> tuple[object, ...]:
        metrics, quotas = self.broker.metrics, self.broker.quotas
        rates = {key: rate.total for key, rate in quotas._rates.items() if key[0] == PRODUCER_BYTE_RATE}
        return {name: copy(value) for name, value in vars(metrics).items()}, rates


class Asked(NamedTuple):
    """A request, as far as it may differ from others."""

    batches: tuple[tuple[str, int, bytes | None], ...]  # topic, partition, records
    version: int = 12
    acks: int = 1
    client_id: str | None = "bench"
    transactional_id: str | None = None
    rest: bytes = b""

    def frame(self, correlation_id: int, ids: dict[str, bytes]) -> bytes:
        topics = [
            TopicProduceData(
                name=name,
                topic_id=ids.get(name, bytes(16)),
                partition_data=[PartitionProduceData(index=index, records=records)],
            )
            for name, index, records in self.batches
        ]
        request = ProduceRequest(
            transactional_id=self.transactional_id, acks=self.acks, timeout_ms=30_000, topic_data=topics
        )
        parts = encode_request(correlation_id, self.client_id, request, self.version)
        return b"".join(cast("list[Buffer]", parts))[4:] + self.rest


def flipped(batch: bytes, position: int) -> bytes:
    at = position % len(batch)
    return batch[:at] + bytes([batch[at] ^ 1]) + batch[at + 1 :]


def numbered(sequence: int, producer_id: int = 7, *, is_transactional: bool = False) -> bytes:
    return bytes(
        build_batch(
            [b"i"],
            timestamp=NOW_MS,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
    )


values = st.lists(st.binary(max_size=200), min_size=1, max_size=3)
times = st.sampled_from([NOW_MS, NOW_MS - 5, NOW_MS + 10**9, -1])
plain = st.builds(lambda taken, at: bytes(build_batch(taken, timestamp=at)), values, times)
keyed = st.builds(lambda taken: bytes(build_batch(taken, keys=[b"k"] * len(taken), timestamp=NOW_MS)), values)
large = st.builds(
    lambda fill, codec: bytes(build_batch([fill * MOST_GATHERED_BATCH_BYTES, b"x"], timestamp=NOW_MS, codec=codec)),
    st.sampled_from([b"a", b"b"]),
    st.sampled_from([NONE, NONE, LZ4]),
)
unusual = st.one_of(
    st.builds(
        lambda taken, codec: bytes(build_batch(taken, timestamp=NOW_MS, codec=codec)),
        values,
        st.sampled_from([GZIP, SNAPPY, LZ4, ZSTD]),
    ),
    st.builds(numbered, st.integers(0, 2), st.sampled_from([7, 8])),
    st.builds(numbered, st.integers(0, 1), st.just(TRANSACTIONAL_PRODUCER_ID), is_transactional=st.booleans()),
    st.builds(flipped, plain, st.integers(0, 500)),
    st.builds(lambda batch, cut: batch[:-cut], plain, st.integers(1, 30)),
    st.builds(lambda one, other: one + other, plain, plain),
    st.sampled_from([None, b"", b"\0" * 61]),
)
# Not with others in one request: those large ones are handled in slices, as time allows.
written_alone = st.one_of(large, st.builds(flipped, large, st.integers(0, MOST_GATHERED_BATCH_BYTES)))
places = st.tuples(
    st.sampled_from(["plain", "plain", "pairs", "compacted", "stamped", "small", "missing"]),
    st.sampled_from([0, 0, 1, 2]),
    st.one_of(plain, plain, keyed, unusual),
)
asked = st.builds(
    Asked,
    batches=st.lists(places, min_size=1, max_size=3).map(tuple),
    version=st.sampled_from([3, 4, 5, 7, 8, 9, 12, 12, 13]),
    acks=st.sampled_from([1, 1, -1, 0, 2]),
    client_id=st.sampled_from(["bench", "other", "", None, "throttled"]),
    transactional_id=st.sampled_from([None, None, None, "t"]),
    rest=st.sampled_from([b"", b"", b"", b"\0"]),
)
usual = st.builds(
    Asked,
    batches=st.tuples(
        st.tuples(st.sampled_from(["plain", "pairs"]), st.just(0), st.one_of(plain, plain, unusual, written_alone))
    ),
    version=st.sampled_from([7, 12, 13]),
    acks=st.sampled_from([1, 1, -1, -1, 0, 2]),
    client_id=st.sampled_from(["bench", "bench", "throttled"]),
)


class Received(NamedTuple):
    """What comes in one round."""

    requests: list[Asked]
    is_disk_full: bool


receives = st.lists(
    st.builds(
        Received, st.lists(st.one_of(usual, usual, asked), max_size=8), st.sampled_from([False, False, False, True])
    ),
    max_size=6,
)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    folder = tmp_path_factory.mktemp
    both = Side(folder("with")), Side(folder("without"), is_fast=False)
    yield both
    for side in both:
        side.opened.stop()


@settings(max_examples=50)
@given(receives, st.sampled_from([False, False, True]), st.data())
def test_answers_logs_metrics_and_quotas_are_the_same(
    sides: tuple[Side, Side], receives: list[Received], is_limited: bool, data: st.DataObject
) -> None:
    for side in sides:
        side.limit(is_limited=is_limited)
    numbers = itertools.count(data.draw(st.integers(-(2**31), 2**31 - 100)))
    for receive in receives:
        with_numbers = [(next(numbers), each) for each in receive.requests]
        outcomes = []
        for side in sides:
            ids = side.ids()
            handle = side.handle_on_full_disk if receive.is_disk_full else side.handle
            client = handle([each.frame(number, ids) for number, each in with_numbers])
            received = client.received
            for name, topic_id in ids.items():
                received = received.replace(topic_id, name.encode().ljust(16))
            outcomes.append((received, client.reasons, client.muted, side.logs(), side.metrics()))
        assert outcomes[0] == outcomes[1]


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=3),
    st.sampled_from([5, 7, 9, 12]),
)
def test_bytes_that_are_changed_anywhere(
    sides: tuple[Side, Side], changes: list[tuple[int, int]], version: int
) -> None:
    batch = bytes(build_batch([b"value"], timestamp=NOW_MS))
    frame = bytearray(Asked((("plain", 0, batch),), version).frame(1, {}))
    usual = bytes(frame)
    for position, byte in changes:
        frame[position % len(frame)] = byte
    outcomes = []
    for side in sides:
        clients = [side.handle([usual, usual]), side.handle([usual, bytes(frame), usual])]
        outcomes.append(([(client.received, client.reasons) for client in clients], side.logs(), side.metrics()))
    assert outcomes[0] == outcomes[1]


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Side]:
    made = Side(tmp_path)
    yield made
    made.opened.stop()


def answers(received: bytes, version: int = 12) -> list[Any]:
    found = []
    while received:
        size = int.from_bytes(received[:4], "big")
        answer = cast(ProduceResponse, decode_response(received[4 : 4 + size], ProduceRequest.api, version)[1])
        found.append(answer.responses[0].partition_responses[0])
        received = received[4 + size :]
    return found


def offsets(client: Client, version: int = 12) -> list[int]:
    return [answer.base_offset for answer in answers(client.received, version)]


def frames(count: int, topic: str = "plain", client_id: str = "bench", version: int = 12) -> list[bytes]:
    batch = bytes(build_batch([b"value"], timestamp=NOW_MS))
    return [Asked(((topic, 0, batch),), version, client_id=client_id).frame(number, {}) for number in range(count)]


def one_frame(batch: bytes, topic: str = "plain", number: int = 0) -> bytes:
    return Asked(((topic, 0, batch),)).frame(number, {})


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[Buffer]:
    """What was written to files."""
    written: list[Buffer] = []
    append = DiskFile.append

    def note(file: DiskFile, data: Buffer) -> None:
        written.append(data)
        append(file, data)

    monkeypatch.setattr(DiskFile, "append", note)
    return written


LARGE = bytes(build_batch([b"v" * MOST_GATHERED_BATCH_BYTES], timestamp=NOW_MS))


@pytest.mark.parametrize("version", [3, 5, 7, 9, 12])
def test_requests_that_come_together_are_written_together(side: Side, writes: list[Buffer], version: int) -> None:
    client = side.handle(frames(10, version=version))
    assert len(writes) == 1
    assert offsets(client, version) == list(range(10))
    assert side.broker.metrics.requests["Produce"] == 10


def test_batches_of_several_producers_are_written_together(side: Side, writes: list[Buffer]) -> None:
    client = side.handle([one_frame(numbered(0, producer_id)) for producer_id in range(5)])
    assert len(writes) == 1
    assert offsets(client) == list(range(5))


def test_a_producer_that_sends_several_batches_at_once_keeps_its_order(side: Side) -> None:
    client = side.handle([one_frame(numbered(sequence)) for sequence in (0, 1, 2, 4, 3)])
    codes = [answer.error_code for answer in answers(client.received)]
    assert codes == [0, 0, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0]
    assert offsets(client) == [0, 1, 2, -1, 3]


def test_a_write_that_fails_refuses_all_that_was_in_it_and_counts_nothing(
    side: Side,
) -> None:
    side.handle(frames(1))
    produced_bytes = side.broker.metrics.produced_bytes

    refused = answers(side.handle_on_full_disk([*frames(2), one_frame(numbered(0)), one_frame(LARGE)]).received)
    follower = answers(side.handle_on_full_disk([one_frame(numbered(1))]).received)
    assert [answer.error_code for answer in refused] == [ErrorCode.KAFKA_STORAGE_ERROR] * 4
    assert [(answer.base_offset, answer.log_append_time_ms) for answer in refused] == [(-1, -1)] * 4
    assert follower[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR  # what was in flight behind it comes again, too
    assert side.broker.metrics.produced_bytes == produced_bytes
    assert offsets(side.handle([*frames(1), one_frame(numbered(0)), one_frame(numbered(1))])) == [1, 2, 3]


def test_without_acknowledgement_a_write_that_fails_closes_the_connection(side: Side) -> None:
    batch = bytes(build_batch([b"value"], timestamp=NOW_MS))
    frame = Asked((("plain", 0, batch),), acks=0).frame(0, {})
    assert side.handle([frame]).reasons == []
    client = side.handle_on_full_disk([frame])
    assert client.reasons == ["a produce request without acknowledgement failed"]
    assert client.received == b""


def test_a_large_batch_is_written_from_where_it_was_received(side: Side, writes: list[Buffer]) -> None:
    received = memoryview(bytearray(one_frame(LARGE)))
    side.dispatch.handle(cast(Connection, Client()), received)
    assert isinstance(writes[0], memoryview)
    assert writes[0].obj is received.obj


def test_who_waits_for_the_disk_does_not_keep_the_memory_of_the_frame(side: Side) -> None:
    side.opened.create(topic("kept", flush_messages="1"))
    client = Client()
    frame = bytearray(one_frame(LARGE, "kept"))
    side.dispatch.handle(cast(Connection, client), memoryview(frame))
    assert client.received == b""
    frame.clear()  # BufferError where anybody still looks at it
    side.opened.loop.run_until(lambda: client.received != b"")
    [answer] = answers(client.received)
    assert (answer.error_code, answer.base_offset) == (0, 0)


def test_a_large_batch_overtakes_nobody(side: Side) -> None:
    small = frames(4)
    client = side.handle([small[0], small[1], one_frame(LARGE, number=7), small[2], small[3]])
    assert offsets(client) == [0, 1, 2, 3, 4]
    assert side.broker.metrics.requests["Produce"] == 5


def test_a_duplicate_is_told_where_it_went_the_first_time(side: Side) -> None:
    client = side.handle([one_frame(numbered(0)), *frames(1), one_frame(numbered(0))])
    assert offsets(client) == [0, 1, 0]


@pytest.mark.parametrize("known", [0, 2])
def test_a_mistake_of_the_broker_closes_the_connection(side: Side, monkeypatch: pytest.MonkeyPatch, known: int) -> None:
    def fail(_file: DiskFile, _data: Buffer) -> None:
        raise AssertionError("nobody thought of it")

    side.handle(frames(known))
    monkeypatch.setattr(DiskFile, "append", fail)
    client = side.handle([one_frame(LARGE)])
    assert client.reasons == ["the broker failed"]
    assert client.received == b""
    assert side.broker.metrics.failures == 1


def test_a_mistake_in_a_joined_write_refuses_who_waits(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_file: DiskFile, _data: Buffer) -> None:
        raise AssertionError("nobody thought of it")

    with monkeypatch.context() as patched:
        patched.setattr(DiskFile, "append", fail)
        refused = answers(side.handle(frames(2)).received)
    assert [answer.error_code for answer in refused] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2


def test_a_topic_that_is_gone_is_unknown(side: Side) -> None:
    side.handle(frames(2))
    side.broker.topics.remove("plain")
    [answer] = answers(side.handle(frames(1)).received)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_was_seen_in_a_round_counts_for_that_round_alone(side: Side) -> None:
    side.broker.quotas.set_limits(client_entity("throttled"), {})
    side.handle(frames(1))
    damaged = flipped(bytes(build_batch([b"value"], timestamp=NOW_MS)), 30)
    [answer] = answers(side.handle([one_frame(damaged)]).received)
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    side.broker.topics.remove("plain")
    [answer] = answers(side.handle(frames(1)).received)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_quota_that_is_set_holds_for_the_next_request(side: Side) -> None:
    side.handle(frames(2))
    side.broker.quotas.set_limits(client_entity("bench"), {PRODUCER_BYTE_RATE: 1.0})
    client = side.handle(frames(1))
    assert client.muted
    assert decode_response(client.received[4:], ProduceRequest.api, 12)[1].throttle_time_ms > 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("acks", [2, -2])
def test_acks_that_are_not_allowed_are_refused_however_often_they_come(side: Side, acks: int) -> None:
    batch = bytes(build_batch([b"value"], timestamp=NOW_MS))
    refused = [Asked((("plain", 0, batch),), acks=acks).frame(number, {}) for number in range(4)]
    found = answers(side.handle(refused).received)
    assert [answer.error_code for answer in found] == [ErrorCode.INVALID_REQUIRED_ACKS] * 4
    assert side.logs() == {}
