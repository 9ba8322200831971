"""Reading and writing in steps comes to the same as doing it at once; and no request has more elements than it may."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings

from ottla.records.build import build_batch
from ottla.wire.apis import APIS
from ottla.wire.errors import ProtocolError
from ottla.wire.layout import carries_records
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.reader import MOST_ELEMENTS, MOST_ELEMENTS_WITH_RECORDS, STEP_ELEMENTS, compile_step_reader
from ottla.wire.registry import REQUESTS, RESPONSES
from ottla.wire.schema import Message, Request
from ottla.wire.varint import uvarint
from ottla.wire.versioned import decode_body
from ottla.wire.writer import compile_step_writer
from tests.wire.joined import joined
from tests.wire.strategies import structs

T = TypeVar("T")

PAIRS: list[tuple[type[Message], int]] = [
    (messages[api.key], version)
    for api in APIS
    for messages in (REQUESTS, RESPONSES)
    for version in sorted({api.least_served, api.highest})
]


def finished(steps: Generator[None, None, T]) -> tuple[T, int]:
    """What comes out, and after how many steps."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


@pytest.mark.parametrize(
    ("message", "version"), PAIRS, ids=[f"{message.__name__}-{version}" for message, version in PAIRS]
)
def test_the_same_comes_out(message: type[Message], version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("reader", "writer"):
        monkeypatch.setattr(f"ottla.wire.{module}.STEP_ELEMENTS", 1)  # a step with each element
    write_in_steps = compile_step_writer(message, version)
    read_in_steps = None if carries_records(message, version) else compile_step_reader(message, version)

    @settings(max_examples=5, database=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(value=structs(message, version))
    def check(value: Any) -> None:
        written = joined(message.writers[version](value))
        assert joined(finished(write_in_steps(value))[0]) == written
        if read_in_steps is not None:
            assert finished(read_in_steps(written, 0))[0] == message.readers[version](written, 0)

    check()


def test_others_are_let_in_after_some_elements() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}") for number in range(10 * STEP_ELEMENTS)])
    parts, steps = finished(compile_step_writer(MetadataRequest, 13)(request))
    assert steps == 10
    (read, _), steps = finished(compile_step_reader(MetadataRequest, 13)(joined(parts), 0))
    assert (read, steps) == (request, 10)


@pytest.mark.parametrize("cut", [1, 1000])
def test_what_is_cut_is_refused_in_steps_too(cut: int) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}") for number in range(1000)])
    written = joined(MetadataRequest.writers[13](request))
    with pytest.raises(ProtocolError):
        finished(compile_step_reader(MetadataRequest, 13)(written[:-cut], 0))


def metadata(count: int) -> Request:
    return MetadataRequest(topics=[MetadataRequestTopic(name="") for _ in range(count)])


def names(count: int) -> Request:
    return DeleteTopicsRequest(topic_names=[""] * count, timeout_ms=0)


def fetch(count: int) -> Request:
    """All in one topic, which is an element itself."""
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=0)] * (count - 1)
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=partitions)])


def produce(count: int) -> Request:
    batch = bytes(build_batch([b""], timestamp=0))
    data = [PartitionProduceData(index=0, records=batch)] * (count - 1)
    return ProduceRequest(acks=1, timeout_ms=0, topic_data=[TopicProduceData(name="t", partition_data=data)])


@pytest.mark.parametrize(
    ("make", "version", "most"),
    [
        (metadata, 13, MOST_ELEMENTS),
        (metadata, 1, MOST_ELEMENTS),
        (names, 5, MOST_ELEMENTS),
        (fetch, 12, MOST_ELEMENTS),
        (produce, 9, MOST_ELEMENTS_WITH_RECORDS),
    ],
)
def test_a_request_has_no_more_elements_than_it_may(make: Callable[[int], Request], version: int, most: int) -> None:
    assert read_every_way(make(most), version) == []
    refusals = read_every_way(make(most + 1), version)
    assert refusals
    assert all("more elements than a request may have" in refusal for refusal in refusals)


def read_every_way(request: Request, version: int) -> list[str]:
    """At once, and in steps where that is possible; the refusals."""
    message = type(request)
    written = joined(message.writers[version](request))
    refusals = []
    try:
        decode_body(message, version, written)
    except ProtocolError as error:
        refusals.append(str(error))
    if not carries_records(message, version):
        try:
            finished(compile_step_reader(message, version)(written, 0))
        except ProtocolError as error:
            refusals.append(str(error))
        assert len(refusals) != 1
    return refusals


def test_tagged_fields_count_as_elements() -> None:
    """Nobody knows them, and each costs as much as an element."""

    def with_tags(count: int) -> bytes:
        head = joined(MetadataRequest.writers[13](MetadataRequest(topics=[])))[:-1]
        return head + uvarint(count) + b"".join(uvarint(100 + number) + b"\0" for number in range(count))

    decode_body(MetadataRequest, 13, with_tags(MOST_ELEMENTS))
    with pytest.raises(ProtocolError):
        decode_body(MetadataRequest, 13, with_tags(MOST_ELEMENTS + 1))
