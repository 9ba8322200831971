"""The wire's fast path, compiled and as plain Python: the same as the functions that it is put before."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire import fast_path as installed
from ottla.wire.frames import encode_request
from ottla.wire.header import read_request_header
from ottla.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.parts import Buffer
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reader import generate_reader
from ottla.wire.writer import VersionTooLow, generate_writer

VERSIONS = range(3, 14)
SIZE_BYTES = 4


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

names = st.one_of(st.sampled_from(["orders", "", "ünïcode", "a" * 126, "a" * 127, "a" * 200]), st.text(max_size=5))
int16, int32, int64 = (st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (16, 32, 64))
ids = st.binary(min_size=16, max_size=16)
records = st.one_of(st.none(), st.binary(max_size=300))
requests = st.builds(
    ProduceRequest,
    transactional_id=st.one_of(st.none(), names),
    acks=int16,
    timeout_ms=int32,
    topic_data=st.lists(
        st.builds(
            TopicProduceData,
            name=names,
            topic_id=ids,
            partition_data=st.lists(st.builds(PartitionProduceData, index=int32, records=records), max_size=3),
        ),
        max_size=3,
    ),
)
answers = st.builds(
    PartitionProduceResponse,
    index=int32,
    error_code=int16,
    base_offset=int64,
    log_append_time_ms=int64,
    log_start_offset=int64,
)
told = st.builds(
    PartitionProduceResponse,
    index=int32,
    error_code=int16,
    base_offset=int64,
    record_errors=st.lists(st.builds(BatchIndexAndErrorMessage, batch_index=int32), max_size=1),
    error_message=st.one_of(st.none(), names),
    current_leader=st.one_of(st.none(), st.just(LeaderIdAndEpoch(leader_id=1, leader_epoch=2))),
)
responses = st.builds(
    ProduceResponse,
    responses=st.lists(
        st.builds(
            TopicProduceResponse,
            name=names,
            topic_id=ids,
            partition_responses=st.lists(st.one_of(answers, answers, told), max_size=3),
        ),
        max_size=3,
    ),
    throttle_time_ms=int32,
)


def frame_of(request: ProduceRequest, version: int, client_id: str | None = "client") -> bytes:
    return b"".join(cast("list[Buffer]", encode_request(7, client_id, request, version)))[SIZE_BYTES:]


def outcome(read: Any, *arguments: Any) -> tuple[object, str]:
    try:
        return read(*arguments), ""
    except ProtocolError as error:
        return None, str(error)


@both_ways
@given(request=requests, version=st.sampled_from(VERSIONS), client_id=st.one_of(st.none(), names))
def test_a_request_is_read_as_the_generated_reader_does(
    module: ModuleType, request: ProduceRequest, version: int, client_id: str | None
) -> None:
    frame = memoryview(frame_of(request, version, client_id))
    header = module.read_usual_header(frame)
    assert header == read_request_header(frame)
    generated = generate_reader(ProduceRequest, version)
    fast = module.ProduceReader(version, generated)
    assert fast(frame, header.body_position) == generated(frame, header.body_position)


@both_ways
@given(
    request=requests,
    version=st.sampled_from(VERSIONS),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 60),
)
def test_bytes_that_are_wrong_are_refused_alike(
    module: ModuleType, request: ProduceRequest, version: int, changes: list[tuple[int, int]], cut: int
) -> None:
    changed = bytearray(frame_of(request, version))
    for position, byte in changes:
        changed[position % len(changed)] = byte
    frame = memoryview(changed)[: max(0, len(changed) - cut)]
    headers = outcome(module.read_usual_header, frame), outcome(read_request_header, frame)
    assert headers[0] == headers[1]
    if headers[0][0] is not None:
        generated = generate_reader(ProduceRequest, version)
        position = cast(Any, headers[0][0]).body_position
        fast = module.ProduceReader(version, generated)
        assert outcome(fast, frame, position) == outcome(generated, frame, position)


@both_ways
@given(response=responses, version=st.sampled_from(VERSIONS))
def test_an_answer_is_written_as_the_generated_writer_does(
    module: ModuleType, response: ProduceResponse, version: int
) -> None:
    generated = generate_writer(ProduceResponse, version)
    fast = module.ProduceWriter(version, generated)
    try:
        expected = b"".join(cast("list[Buffer]", generated(response)))
    except VersionTooLow:
        with pytest.raises(VersionTooLow):
            fast(response)
    else:
        assert b"".join(fast(response)) == expected


@both_ways
@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_usual_is_not_left_to_the_generated_functions(module: ModuleType, version: int) -> None:
    def never(*_arguments: object) -> Any:
        raise AssertionError("left to the generated function")

    data = [PartitionProduceData(index=index, records=b"x" * 20_000) for index in range(2)]
    topics = [TopicProduceData(name=f"topic-{number}", partition_data=data) for number in range(100)]
    frame = memoryview(frame_of(ProduceRequest(acks=-1, timeout_ms=5, topic_data=topics), version))
    request, _ = module.ProduceReader(version, never)(frame, read_request_header(frame).body_position)
    assert len(request.topic_data) == 100
    answer = PartitionProduceResponse(index=0, error_code=3, base_offset=-1)
    answered = [TopicProduceResponse(name="topic", partition_responses=[answer] * 3)] * 100
    assert len(module.ProduceWriter(version, never)(ProduceResponse(responses=answered))) == 1


@both_ways
def test_records_stay_where_they_were_received(module: ModuleType) -> None:
    data = [PartitionProduceData(index=0, records=b"records")]
    request = ProduceRequest(acks=1, timeout_ms=5, topic_data=[TopicProduceData(name="topic", partition_data=data)])
    frame = memoryview(bytearray(frame_of(request, 12)))
    read, _ = module.ProduceReader(12, generate_reader(ProduceRequest, 12))(frame, read_request_header(frame)[4])
    taken = read.topic_data[0].partition_data[0].records
    assert isinstance(taken, memoryview)
    assert not taken.readonly
    assert taken.obj is frame.obj


def test_the_hints_of_a_new_leader_are_left_to_the_generated_writer() -> None:
    endpoint = NodeEndpoint(node_id=1, host="localhost", port=9092)
    response = ProduceResponse(responses=[], node_endpoints=[endpoint])
    generated = generate_writer(ProduceResponse, 12)
    assert installed.ProduceWriter(12, generated)(response) == generated(response)
