"""The wire's fast path, compiled and as plain Python: the same as the functions that it is put before."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.wire import fast_path as installed
from ottla.wire.apis import APIS
from ottla.wire.errors import ProtocolError
from ottla.wire.frames import encode_request
from ottla.wire.header import read_request_header, total_bytes
from ottla.wire.messages.api_versions import ApiVersionsResponse
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.offset_and_group_records import OffsetCommitValue
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.parts import Buffer
from ottla.wire.reader import generate_reader
from ottla.wire.registry import REQUESTS, RESPONSES
from ottla.wire.schema import Message, Struct, constructor_order
from ottla.wire.writer import generate_writer
from tests.wire.joined import joined
from tests.wire.strategies import filled, structs


def load_plain() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_fast_path", Path(installed.__file__).parent / "fast_path.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


needs_compiled = pytest.mark.skipif(not installed.COMPILED, reason="not compiled here: no C compiler at install")
both_ways = pytest.mark.parametrize(
    "module", [pytest.param(load_plain(), id="plain"), pytest.param(installed, id="compiled", marks=needs_compiled)]
)

MESSAGES: list[tuple[type[Message], int]] = [
    (messages[api.key], version)
    for api in APIS
    for messages in (REQUESTS, RESPONSES)
    for version in range(api.least_served, api.highest + 1)
]
a_message = st.sampled_from([pair for pair in MESSAGES if installed.is_usual_message(*pair)])
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


def never(_message: type[Message], _version: int) -> NoReturn:
    raise AssertionError("left to the generated function")


def outcome(function: Any, *arguments: Any) -> tuple[object, str]:
    try:
        return function(*arguments), ""
    except (ProtocolError, ValueError, TypeError, AttributeError) as error:
        return None, str(error)


def parts_of(written: tuple[Any, str]) -> tuple[list[bytes], str]:
    return [bytes(part) for part in written[0] or ()], written[1]


def changed(body: bytes, changes: list[tuple[int, int]], cut: int) -> memoryview:
    """Not quite what was written."""
    data = bytearray(body)
    for position, byte in changes:
        if data:
            data[position % len(data)] = byte
    return memoryview(data)[: max(0, len(data) - cut)]


WRONG = (None, 1 << 40, -(1 << 70), -1, 2.5, "text", "\ud800", b"x" * 15, bytearray(3), [None], (), "y" * 40_000)


@both_ways
@settings(suppress_health_check=SLOW)
@given(pair=a_message, data=st.data())
def test_what_a_message_can_say_is_written_and_read_as_the_generated_functions_do(
    module: ModuleType, pair: tuple[type[Message], int], data: st.DataObject
) -> None:
    message, version = pair
    value = data.draw(structs(message, version))
    parts = generate_writer(message, version)(value)
    assert module.MessageWriter(message, version, generate_writer)(value) == parts
    body = b"?" + joined(parts)
    read = module.MessageReader(message, version, generate_reader)(memoryview(body), 1)
    assert read == generate_reader(message, version)(body, 1)


@both_ways
@settings(suppress_health_check=SLOW)
@given(
    pair=a_message,
    data=st.data(),
    changes=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 30),
)
def test_bytes_that_are_wrong_are_refused_alike(
    module: ModuleType,
    pair: tuple[type[Message], int],
    data: st.DataObject,
    changes: list[tuple[int, int]],
    cut: int,
) -> None:
    message, version = pair
    body = changed(joined(generate_writer(message, version)(data.draw(structs(message, version)))), changes, cut)
    fast = module.MessageReader(message, version, generate_reader)
    assert outcome(fast, body, 0) == outcome(generate_reader(message, version), body, 0)


@both_ways
@settings(suppress_health_check=SLOW)
@given(
    pair=a_message,
    data=st.data(),
    field=st.integers(0, 20),
    wrong=st.sampled_from(WRONG),
)
def test_what_a_message_cannot_say_is_refused_alike(
    module: ModuleType, pair: tuple[type[Message], int], data: st.DataObject, field: int, wrong: object
) -> None:
    message, version = pair
    value = data.draw(structs(message, version))
    if message.declared:
        setattr(value, list(message.declared)[field % len(message.declared)], wrong)
    fast = outcome(module.MessageWriter(message, version, generate_writer), value)
    assert parts_of(fast) == parts_of(outcome(generate_writer(message, version), value))


@both_ways
@pytest.mark.parametrize(
    ("message", "version"), [(each, version) for each, version in MESSAGES if version == each.versions.highest]
)
def test_what_is_usual_is_not_left_to_the_generated_functions(
    module: ModuleType, message: type[Message], version: int
) -> None:
    if not module.is_usual_message(message, version):
        pytest.skip("only the generated functions know it")
    value = filled(message, version)
    body = joined(module.MessageWriter(message, version, never)(value))
    assert module.MessageReader(message, version, never)(body, 0) == (value, len(body))


def test_nearly_all_messages_are_usual() -> None:
    assert len([pair for pair in MESSAGES if not installed.is_usual_message(*pair)]) < 10


@both_ways
@given(
    changes=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 40),
    client_id=st.sampled_from([None, "", "client", "ünïcode"]),
    version=st.sampled_from([2, 4]),
)
def test_headers_are_read_and_refused_alike(
    module: ModuleType, changes: list[tuple[int, int]], cut: int, client_id: str | None, version: int
) -> None:
    request = HeartbeatRequest(group_id="group", generation_id=1, member_id="member")
    written = b"".join(cast("list[Buffer]", encode_request(7, client_id, request, version)))[4:]
    frame = changed(written, changes, cut)
    assert outcome(module.read_usual_header, frame) == outcome(read_request_header, frame)


@both_ways
def test_records_stay_where_they_were_received(module: ModuleType) -> None:
    data = [PartitionProduceData(index=0, records=b"records")]
    request = ProduceRequest(acks=1, timeout_ms=5, topic_data=[TopicProduceData(name="topic", partition_data=data)])
    frame = memoryview(bytearray(joined(ProduceRequest.writers[12](request))))
    read, _ = module.MessageReader(ProduceRequest, 12, never)(frame, 0)
    taken = read.topic_data[0].partition_data[0].records
    assert isinstance(taken, memoryview)
    assert not taken.readonly
    assert taken.obj is frame.obj


@both_ways
@pytest.mark.parametrize("version", [4, 12, 17])
def test_the_parts_of_a_frame_are_those_of_its_body_behind_its_head(module: ModuleType, version: int) -> None:
    response = filled(FetchResponse, version)
    head, *rest = module.MessageWriter(FetchResponse, version, never).frame(7, response)
    parts: list[Any] = generate_writer(FetchResponse, version)(response)
    first, *expected = parts
    tags = b"\0" if version >= 12 else b""
    size = 4 + len(tags) + total_bytes([first, *expected])
    assert bytes(head) == size.to_bytes(4, "big") + (7).to_bytes(4, "big") + tags + first
    assert rest == expected


@both_ways
def test_the_head_of_an_answer_to_api_versions_has_no_tags(module: ModuleType) -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])
    (frame,) = module.MessageWriter(ApiVersionsResponse, 3, never).frame(7, response)
    assert frame[8:] == joined(generate_writer(ApiVersionsResponse, 3)(response))


@both_ways
def test_what_does_not_fit_in_the_first_buffer_is_written(module: ModuleType) -> None:
    answers = [PartitionProduceResponse(index=index, error_code=0, base_offset=5) for index in range(500)]
    large = ProduceResponse(responses=[TopicProduceResponse(name="n" * 2_000, partition_responses=answers)] * 9)
    writer = module.MessageWriter(ProduceResponse, 12, never)
    for response in (large, ProduceResponse(responses=[]), large):
        assert writer(response) == generate_writer(ProduceResponse, 12)(response)


@both_ways
@pytest.mark.parametrize("struct", [PartitionProduceResponse, OffsetCommitValue, ProduceResponse])
def test_a_constructor_by_positions_makes_the_same(module: ModuleType, struct: type[Struct]) -> None:
    make: Any = module.Constructor(struct).make
    as_declared: Any = struct
    for count in range(len(constructor_order(struct)) + 2):
        values = [f"value {number}" for number in range(count)]
        try:
            expected = as_declared(*values)
        except TypeError:
            with pytest.raises(TypeError):
                make(tuple(values))
        else:
            assert make(tuple(values)) == expected
