from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2

from ottla.wire.apis import API_VERSIONS, APIS, FETCH, HEARTBEAT, SASL_HANDSHAKE, Api
from ottla.wire.errors import ProtocolError
from ottla.wire.frames import (
    decode_request,
    decode_request_body,
    decode_response,
    encode_request,
    encode_response,
)
from ottla.wire.header import (
    RequestHeader,
    read_correlation_id,
    read_request_header,
    request_header_bytes,
    response_body_position,
)
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.wire.joined import joined
from tests.wire.kio_counterpart import write_entity
from tests.wire.strategies import TEXTS

INT32 = st.integers(-(2**31), 2**31 - 1)


def heartbeat() -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@given(st.sampled_from(APIS), st.integers(0, 20), INT32, st.none() | TEXTS)
def test_request_headers_are_those_of_kio(api: Api, version: int, correlation_id: int, client_id: str | None) -> None:
    written = request_header_bytes(api, version, correlation_id, client_id)
    kio_header: Any = KioHeader2 if api.is_flexible(version) else KioHeader1
    assert written == write_entity(
        kio_header(
            request_api_key=api.key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=client_id,
        )
    )
    read = read_request_header(written + b"body")
    assert read == RequestHeader(api, version, correlation_id, client_id, len(written))


def test_a_request_in_bytes() -> None:
    # size, key 12, version 4, correlation id, client id (old length), no tags; then the body
    assert joined(encode_request(7, "c", heartbeat(), 4)).hex() == (
        "00000016 000c 0004 00000007 0001 63 00 02 67 00000001 02 6d 00 00".replace(" ", "")
    )


@pytest.mark.parametrize("version", [0, 3, 4])
def test_a_request_comes_back(version: int) -> None:
    (frame,) = encode_request(7, None, heartbeat(), version)
    data = joined([frame])
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    header, request = decode_request(data[4:])
    assert header[:4] == (HEARTBEAT, version, 7, None)
    assert request == heartbeat()


@pytest.mark.parametrize("version", [3, 13])
def test_a_request_with_records_in_parts(version: int) -> None:
    records = memoryview(b"r" * 1000)
    topic = TopicProduceData(
        name="t" if version < 13 else "",
        topic_id=bytes(16),
        partition_data=[PartitionProduceData(index=0, records=records)],
    )
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[topic])
    parts = encode_request(1, "c", request, version)
    assert parts[1] is records
    data = joined(parts)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert decode_request(data[4:])[1] == request


@pytest.mark.parametrize("version", [0, 4])
def test_a_response_comes_back(version: int) -> None:
    response = HeartbeatResponse(error_code=27)
    data = joined(encode_response(-5, response, version))
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert read_correlation_id(data[4:]) == -5
    assert decode_response(data[4:], HEARTBEAT, version) == (-5, response)


def test_response_headers_have_tags_from_the_flexible_version_on() -> None:
    response = HeartbeatResponse(error_code=27)
    assert joined(encode_response(1, response, 3)).hex() == "0000000a0000000100000000001b"
    assert joined(encode_response(1, response, 4)).hex() == "0000000c000000010000000000001b00"
    with_a_tag = bytes.fromhex("00000001 01 05 02 aabb 00000000 001b 00")
    assert decode_response(with_a_tag, HEARTBEAT, 4) == (1, response)


def test_the_header_of_api_versions_never_has_tags() -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])
    data = joined(encode_response(1, response, 4))
    assert data[4:].hex() == "00000001 0000 02 0012 0000 0004 00 00000000 00".replace(" ", "")
    assert response_body_position(data[4:], API_VERSIONS, 4) == 4
    assert decode_response(data[4:], API_VERSIONS, 4) == (1, response)


def test_a_fetch_response_with_file_ranges_knows_its_size() -> None:
    class Range:
        file, position, size_bytes = "log", 0, 5_000_000

    stored = Range()
    partition = PartitionData(
        partition_index=0, error_code=0, high_watermark=1, aborted_transactions=None, records=stored
    )
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    parts = encode_response(3, response, 12)
    assert parts[1] is stored
    in_memory = [parts[0], *parts[2:]]
    size_bytes = int.from_bytes(joined(parts[:1])[:4], "big")
    assert size_bytes == len(joined(in_memory)) - 4 + stored.size_bytes
    assert FETCH.is_flexible(12)


def test_the_header_of_a_version_that_is_not_served_can_be_read() -> None:
    frame = bytes.fromhex("0012 0063 00000007 0001 63 00 ffff")
    header = read_request_header(frame)
    assert header == RequestHeader(API_VERSIONS, 99, 7, "c", 12)
    with pytest.raises(ProtocolError, match="ApiVersionsRequest has no version 99"):
        decode_request_body(header, frame)


def test_produce_below_version_3_is_refused() -> None:
    with pytest.raises(ProtocolError, match="ProduceRequest has no version 2"):
        decode_request(bytes.fromhex("0000 0002 00000007 ffff 0001 00000000 00000000"))


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        ("", "request header: 0 bytes are too few"),
        ("0012 0003 00000007", "request header: 8 bytes are too few"),
        ("0012 0003 00000007 0005 63", "client id of 5 bytes does not fit"),
        ("0012 0003 00000007 0001 63", "request header: 11 bytes are too few"),
        ("0012 0003 00000007 0001 63 01 00 05", "tagged field of 5 bytes, 0 left"),
        ("0047 0000 00000007 0001 63 00", "unknown API 71"),
        ("ffff 0000 00000007 0001 63 00", "unknown API -1"),
        ("0012 ffff 00000007 0001 63", "ApiVersionsRequest has no version -1"),
    ],
)
def test_broken_requests_are_refused(frame: str, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode_request(bytes.fromhex(frame))


@pytest.mark.parametrize("frame", ["", "000000", "00000001", "00000001 01"])
def test_broken_responses_are_refused(frame: str) -> None:
    with pytest.raises(ProtocolError):
        decode_response(bytes.fromhex(frame), HEARTBEAT, 4)


def test_bytes_behind_a_request_are_ignored() -> None:
    frame = bytes.fromhex("0012 0000 00000007 0001 63 dead")
    assert decode_request(frame)[1] == ApiVersionsRequest()
    assert not SASL_HANDSHAKE.is_flexible(1)


def test_a_client_id_that_is_no_text_is_repaired_as_kafka_does() -> None:
    header = read_request_header(bytes.fromhex("0012000300000007000263ff00"))
    assert header.client_id == "c\N{REPLACEMENT CHARACTER}"
