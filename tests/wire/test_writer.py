from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.messages.create_topics import CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.offset_commit import OffsetCommitRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.parts import Part
from ottla.wire.versioned import decode_body, encode_body
from tests.wire.joined import joined

UUID = bytes(range(16))


class Range(NamedTuple):
    """A file range that nobody opens. As a tuple it has a length, which is not its size."""

    file: str
    position: int
    size_bytes: int


def fetch_response(*records: Part | None) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=index, error_code=0, high_watermark=0, aborted_transactions=None, records=each)
        for index, each in enumerate(records)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=UUID, partitions=partitions)])


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_records_stand_between_the_pieces_untouched(version: int) -> None:
    stored, given = Range("log", 4096, 1_000_000), memoryview(bytearray(b"abc"))
    parts = FetchResponse.writers[version](fetch_response(stored, given))
    assert parts[1] is stored
    assert parts[3] is given
    assert all(isinstance(part, bytes) for part in (parts[0], parts[2], *parts[4:]))
    assert len(parts) == (4 if version < 12 else 5)


@pytest.mark.parametrize("version", [4, 17])
def test_a_file_range_counts_as_its_size(version: int) -> None:
    size_bytes = 1_000
    parts = FetchResponse.writers[version](fetch_response(Range("log", 0, size_bytes)))
    parts[1] = bytes(size_bytes)
    read = decode_body(FetchResponse, version, joined(parts))
    assert read.responses[0].partitions[0].records == bytes(size_bytes)


@pytest.mark.parametrize("version", [4, 17])
@pytest.mark.parametrize("records", [None, b"", Range("log", 0, 0)])
def test_no_records_make_one_piece(version: int, records: Part | None) -> None:
    (piece,) = FetchResponse.writers[version](fetch_response(records, records))
    read = decode_body(FetchResponse, version, joined([piece]))
    expected = None if records is None else b""
    assert [partition.records for partition in read.responses[0].partitions] == [expected, expected]


@given(st.lists(st.none() | st.binary(max_size=300), max_size=200), st.sampled_from([4, 11, 12, 16, 18]))
def test_many_partitions_come_back(records: list[Part | None], version: int) -> None:
    written = joined(FetchResponse.writers[version](fetch_response(*records)))
    read = decode_body(FetchResponse, version, written)
    assert [partition.records for partition in read.responses[0].partitions] == records


def test_the_bytes_of_kafka_for_a_hint_at_the_leader() -> None:
    # As Apache Kafka 4.3.1 writes it: tag 1 of 9 bytes in the partition, no other tags.
    response = fetch_response(None)
    (partition,) = response.responses[0].partitions
    partition.partition_index = 1
    partition.current_leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=3)
    partition.high_watermark = 0
    assert joined(FetchResponse.writers[17](response)).hex() == (
        "00000000 0000 00000000 02 000102030405060708090a0b0c0d0e0f 02"
        "00000001 0000 0000000000000000 ffffffffffffffff ffffffffffffffff 00 ffffffff 00"
        "01 01 09 00000002 00000003 00 00 00"
    ).replace(" ", "")


@pytest.mark.parametrize(
    ("request_", "version", "complaint"),
    [
        (
            HeartbeatRequest(group_id="g", generation_id=2**31, member_id="m"),
            3,
            r"HeartbeatRequest v3: generation_id to member_id: ",
        ),
        (
            HeartbeatRequest(group_id="g" * 32768, generation_id=1, member_id="m"),
            3,
            r"HeartbeatRequest v3: group_id: ",
        ),
        (
            HeartbeatRequest(group_id="g" * 32768, generation_id=1, member_id="m"),
            4,
            r"HeartbeatRequest v4: group_id: string of 32768 bytes, 32767 at most are allowed",
        ),
        (
            HeartbeatRequest(group_id=None, generation_id=1, member_id="m"),  # type: ignore[arg-type]
            4,
            r"HeartbeatRequest v4: group_id: .*None",
        ),
        (
            HeartbeatRequest(group_id="\ud800", generation_id=1, member_id="m"),
            4,
            r"HeartbeatRequest v4: group_id: .*surrogates",
        ),
        (
            HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="i"),
            2,
            r"HeartbeatRequest v2: group_instance_id: only versions 3\+ can carry 'i'",
        ),
    ],
)
def test_what_cannot_be_written_names_the_field(request_: HeartbeatRequest, version: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        encode_body(request_, version)


def test_a_field_in_an_array_is_named_by_its_path() -> None:
    request = ProduceRequest(
        acks=1,
        timeout_ms=0,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=2**31, records=b"")])],
    )
    with pytest.raises(ValueError, match=r"topic_data.partition_data.index to topic_data.partition_data.records"):
        ProduceRequest.writers[3](request)


def test_null_topics_have_no_bytes_in_version_0() -> None:
    with pytest.raises(ValueError, match=r"MetadataRequest v0: topics: "):
        encode_body(MetadataRequest(topics=None), 0)


def test_a_static_member_is_not_lost_silently() -> None:
    request = OffsetCommitRequest(group_id="g", member_id="m", group_instance_id="i", topics=[])
    with pytest.raises(ValueError, match=r"group_instance_id: only versions 7\+ can carry 'i'"):
        encode_body(request, 6)
    assert decode_body(OffsetCommitRequest, 7, encode_body(request, 7)) == request


@pytest.mark.parametrize("version", [5, 7])
def test_a_list_that_stands_in_many_places_is_written_in_each(version: int) -> None:
    def configs(*names: str) -> list[CreatableTopicConfigs]:
        return [CreatableTopicConfigs(name=name, value="1", read_only=False, is_sensitive=False) for name in names]

    shared = configs("a", "b")
    lists = [shared, configs("c"), shared, None, [], shared]
    topics = [CreatableTopicResult(name="t", error_code=0, configs=each) for each in lists]
    parts = CreateTopicsResponse.writers[version](CreateTopicsResponse(topics=topics))
    read = decode_body(CreateTopicsResponse, version, joined(parts))
    assert [topic.configs for topic in read.topics] == lists
