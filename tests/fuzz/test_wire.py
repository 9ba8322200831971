"""Whatever comes over the wire ends in a message or in the one error, in memory bounded by the frame."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ottla.wire.apis import APIS, Api
from ottla.wire.errors import ProtocolError
from ottla.wire.frames import decode_request, decode_response, encode_request, encode_response
from ottla.wire.messages.consumer_protocol import decode_assignment, decode_subscription
from ottla.wire.messages.group_records import GROUP_RECORDS
from ottla.wire.messages.metadata import MetadataResponse
from ottla.wire.messages.transaction_records import TRANSACTION_RECORDS
from ottla.wire.registry import REQUESTS, RESPONSES
from ottla.wire.schema import Request, Response
from ottla.wire.varint import uvarint
from tests.wire.joined import joined
from tests.wire.strategies import filled, structs

VERSIONS = [(api, version) for api in APIS for version in range(api.least_served, api.highest + 1)]
MUTATIONS_PER_FRAME = 12
CORRELATION_ID = 7

thorough = settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def ends_well(read: Callable[..., object], *arguments: object) -> None:
    """Any other error than this one fails the test."""
    with suppress(ProtocolError):
        read(*arguments)


@thorough
@given(st.binary(max_size=200))
@example(b"")
def test_random_frames(frame: bytes) -> None:
    ends_well(decode_request, frame)


@thorough
@given(st.sampled_from(VERSIONS), st.none() | st.just("client"), st.binary(max_size=200))
def test_random_bodies(pair: tuple[Api, int], client_id: str | None, body: bytes) -> None:
    api, version = pair
    ends_well(REQUESTS[api.key].readers[version], body, 0)
    ends_well(decode_response, body, api, version)


def mutated(frame: bytes, choices: random.Random) -> bytes:
    """A frame with one thing wrong: cut, bytes changed to what hurts lengths, bytes put in or taken out."""
    data = bytearray(frame)
    at = choices.randrange(len(data) + 1)
    match choices.randrange(4):
        case 0:
            del data[at:]
        case 1:
            data[at : at + 1] = choices.choice([b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff"])
        case 2:
            data[at : at + 4] = choices.choice([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"])
        case 3:
            data[at:at] = choices.randbytes(choices.randrange(1, 6))
    return bytes(data)


@thorough
@given(st.data(), st.sampled_from(VERSIONS), st.integers(0, 2**32))
def test_mutated_requests(data: st.DataObject, pair: tuple[Api, int], seed: int) -> None:
    api, version = pair
    request: Request = data.draw(structs(REQUESTS[api.key], version))
    frame = joined(encode_request(CORRELATION_ID, "client", request, version))[4:]
    assert decode_request(frame)[1] == request
    choices = random.Random(seed)
    for _ in range(MUTATIONS_PER_FRAME):
        broken = mutated(frame, choices)
        ends_well(decode_request, broken)
        ends_well(decode_request, memoryview(broken))


@thorough
@given(st.data(), st.sampled_from(VERSIONS), st.integers(0, 2**32))
def test_mutated_responses(data: st.DataObject, pair: tuple[Api, int], seed: int) -> None:
    api, version = pair
    response: Response = data.draw(structs(RESPONSES[api.key], version))
    frame = joined(encode_response(CORRELATION_ID, response, version))[4:]
    assert decode_response(frame, api, version) == (CORRELATION_ID, response)
    choices = random.Random(seed)
    for _ in range(MUTATIONS_PER_FRAME):
        ends_well(decode_response, mutated(frame, choices), api, version)


def test_every_request_cut_anywhere() -> None:
    """A prefix of a good body is never taken for a whole one."""
    for api, version in VERSIONS:
        message = REQUESTS[api.key]
        body = joined(message.writers[version](filled(message, version)))
        for size_bytes in range(len(body)):
            with pytest.raises(ProtocolError):
                message.readers[version](body[:size_bytes], 0)


@thorough
@given(st.binary(max_size=100), st.sampled_from(sorted(GROUP_RECORDS.types)))
def test_random_records(data: bytes, record_type: int) -> None:
    for types in (GROUP_RECORDS, TRANSACTION_RECORDS):
        ends_well(types.decode_key, data)
        ends_well(types.decode_key, record_type.to_bytes(2, "big") + data)
    ends_well(decode_subscription, data)
    ends_well(decode_assignment, data)


HOSTILE_COUNTS = [b"\x7f\xff\xff\xff", b"\x00\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x08"]


@pytest.mark.parametrize("count", HOSTILE_COUNTS, ids=lambda count: count.hex())
def test_hostile_counts_cost_no_memory(count: bytes) -> None:
    """A count in any place of a frame makes nothing that the frame does not hold."""
    frame = count * 400
    for api, version in VERSIONS:
        for message in (REQUESTS[api.key], RESPONSES[api.key]):
            reader = message.readers[version]
            for start in range(8):
                ends_well(reader, frame, start)  # what it needs to say what is wrong is made once, and kept
            tracemalloc.start()
            for start in range(8):
                ends_well(reader, frame, start)
            _, peak_bytes = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak_bytes < 50 * len(frame)


def test_memory_grows_with_the_frame_only() -> None:
    """The smallest topics there can be, as many as fit."""
    count = 20_000
    # error code, name of no bytes, not internal, no partitions, operations, no tags
    topic = bytes.fromhex("0000 01 00 01 00000000 00")
    # throttle time, no brokers, cluster id null, controller; behind the topics operations, no tags
    frame = bytes.fromhex("00000000 01 00 00000000") + uvarint(count + 1) + topic * count + bytes(5)
    tracemalloc.start()
    response, _ = MetadataResponse.readers[9](frame, 0)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(response.topics) == count
    assert peak_bytes < 50 * len(frame)
