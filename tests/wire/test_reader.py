"""What readers take and what they refuse. The lenient cases are those that Apache Kafka 4.3.1 lets pass."""

from __future__ import annotations

import linecache

import pytest

from ottla.wire.errors import ProtocolError
from ottla.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from ottla.wire.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.reader import generate_reader
from ottla.wire.versioned import decode_body

# Wait 500 ms, 1 byte at least, no limit, isolation 0, session 0 epoch -1, no topics, none forgotten, rack "".
FETCH_17 = "000001f4 00000001 7fffffff 00 00000000 ffffffff 01 01 01"


def fetch(tags: str) -> FetchRequest:
    return decode_body(FetchRequest, 17, bytes.fromhex(FETCH_17 + tags))


def test_unknown_tagged_fields_are_skipped() -> None:
    assert fetch("01 09 02 aabb") == fetch("00")
    assert fetch("02 8001 00 ffffffff07 00") == fetch("00")


def test_tagged_fields_may_come_in_any_order_and_the_last_of_two_holds() -> None:
    assert fetch("02 01 0d 00000005 0000000000000007 00 00 02 0262") == FetchRequest(
        cluster_id="b",
        replica_state=ReplicaState(replica_id=5, replica_epoch=7),
        max_wait_ms=500,
        min_bytes=1,
        topics=[],
    )
    assert fetch("02 00 02 0261 00 02 0262").cluster_id == "b"


@pytest.mark.parametrize("tags", ["01 00 04 0262 ffff", "01 00 01 0262"])
def test_a_tagged_field_fills_its_size(tags: str) -> None:
    with pytest.raises(ProtocolError, match=r"FetchRequest v17: cluster_id: .* announced than the field takes"):
        fetch(tags)


@pytest.mark.parametrize("length", ["ffffffff", "fffffffe", "80000000"])
def test_any_negative_count_is_null(length: str) -> None:
    request = decode_body(MetadataRequest, 8, bytes.fromhex(length + "01 00 00"))
    assert request.topics is None


def test_any_negative_length_is_null() -> None:
    request = decode_body(HeartbeatRequest, 3, bytes.fromhex("0001 67 00000001 0001 6d fffe"))
    assert request.group_instance_id is None


def test_any_byte_but_zero_is_true() -> None:
    request = decode_body(MetadataRequest, 8, bytes.fromhex("ffffffff 02 00 ff"))
    assert request.allow_auto_topic_creation is True
    assert request.include_cluster_authorized_operations is False
    assert request.include_topic_authorized_operations is True


@pytest.mark.parametrize(("marker", "present"), [("01", True), ("00", True), ("7f", True), ("ff", False)])
def test_a_nullable_struct_is_null_behind_a_negative_byte(marker: str, present: bool) -> None:
    cursor = "0261 00000001 00" if present else ""
    request = decode_body(DescribeTopicPartitionsRequest, 0, bytes.fromhex(f"01 000007d0 {marker} {cursor} 00"))
    assert request.cursor == (Cursor(topic_name="a", partition_index=1) if present else None)


def test_bytes_behind_the_message_are_left_alone() -> None:
    data = bytes.fromhex("ffffffff 01 00 00 dead")
    assert MetadataRequest.readers[8](data, 0)[1] == 7


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read_from_any_position(kind: type[bytes | bytearray | memoryview]) -> None:
    data = kind(bytes.fromhex("dead 0001 67 00000001 0001 6d ffff"))
    request, position = HeartbeatRequest.readers[3](data, 2)
    assert request == HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert position == len(data)


HEARTBEAT = "02 67 00000001 02 6d 00 00"


@pytest.mark.parametrize(
    ("version", "data", "complaint"),
    [
        (3, "", r"HeartbeatRequest v3: group_id: ends too early \(byte 0 of 0\)"),
        (3, "0005 67", r"HeartbeatRequest v3: group_id: 5 bytes announced, 1 left \(byte 2 of 3\)"),
        (3, "ffff", r"HeartbeatRequest v3: group_id: null where null is not allowed"),
        (3, "0001 67 0000", r"HeartbeatRequest v3: generation_id to member_id: ends too early"),
        (3, "0001 ff 00000001 0001 6d ffff", r"HeartbeatRequest v3: group_id: not UTF-8"),
        (3, "0003 eda080 00000001 0001 6d ffff", r"HeartbeatRequest v3: group_id: not UTF-8"),
        (4, "00", r"HeartbeatRequest v4: group_id: null where null is not allowed"),
        (4, "ffffffff0f", r"HeartbeatRequest v4: group_id: varint above 31 bits"),
        (4, "ffffffff07", r"HeartbeatRequest v4: group_id: 2147483646 bytes announced"),
        (4, HEARTBEAT[:-2], r"HeartbeatRequest v4: tagged fields: ends too early"),
        (4, HEARTBEAT[:-2] + "01", r"HeartbeatRequest v4: tagged fields: ends too early"),
        (4, HEARTBEAT[:-2] + "01 00 05 00", r"tagged fields: tagged field of 5 bytes, 1 left"),
        (4, HEARTBEAT[:-2] + "ffffffff07", r"tagged fields: more elements than a request may have"),
        (4, HEARTBEAT[:-2] + "05", r"tagged fields: ends too early"),
    ],
)
def test_what_is_refused(version: int, data: str, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode_body(HeartbeatRequest, version, bytes.fromhex(data))


def test_compact_strings_are_no_longer_than_others() -> None:
    # Kafka refuses them too: 32,767 bytes are the most that the older versions can say.
    rest = bytes.fromhex("00000001 02 6d 00 00")
    longest = decode_body(HeartbeatRequest, 4, b"\x80\x80\x02" + b"g" * 32767 + rest)
    assert len(longest.group_id) == 32767
    with pytest.raises(ProtocolError, match="group_id: string of 32768 bytes, 32767 at most"):
        decode_body(HeartbeatRequest, 4, b"\x81\x80\x02" + b"g" * 32768 + rest)


@pytest.mark.parametrize(
    ("version", "data", "complaint"),
    [
        (8, "00000100 01 00 00", r"topics: 256 elements of 2 bytes or more announced, 3 bytes left"),
        (8, "7fffffff 01 00 00", r"topics: 2147483647 elements"),
        (0, "ffffffff", r"topics: null where null is not allowed"),
        (9, "ffffffff07 01 00 00", r"topics: 2147483646 elements"),
    ],
)
def test_counts_are_held_against_what_is_left(version: int, data: str, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode_body(MetadataRequest, version, bytes.fromhex(data))


def test_a_count_is_checked_by_the_least_size_of_its_elements() -> None:
    # One topic with 2 partitions of 33 bytes or more, but only 65 bytes are there.
    topics = "000001f4 00000001 7fffffff 00 00000000 ffffffff 02" + "00" * 16 + "03"
    with pytest.raises(ProtocolError, match=r"topics.partitions: 2 elements of 33 bytes or more"):
        decode_body(FetchRequest, 17, bytes.fromhex(topics) + bytes(65))


PRODUCE_3 = "ffff ffff 00007530 00000001 0001 74 00000001 00000000"


def test_records_are_a_view_of_the_frame() -> None:
    frame = bytearray.fromhex(PRODUCE_3 + "00000003 0a0b0c")
    request = decode_body(ProduceRequest, 3, frame)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"\x0a\x0b\x0c"
    frame[-1] = 0xFF
    assert records[2] == 0xFF
    records[0] = 0xEE  # the broker stamps batches in place
    assert frame[-3] == 0xEE


@pytest.mark.parametrize(("tail", "records"), [("ffffffff", None), ("fffffff0", None), ("00000000", b"")])
def test_records_may_be_null_or_empty(tail: str, records: bytes | None) -> None:
    request = decode_body(ProduceRequest, 3, bytes.fromhex(PRODUCE_3 + tail))
    assert request.topic_data[0].partition_data[0].records == records


def test_records_do_not_reach_past_the_frame() -> None:
    with pytest.raises(ProtocolError, match=r"topic_data.partition_data.records: 4 bytes announced, 3 left"):
        decode_body(ProduceRequest, 3, bytes.fromhex(PRODUCE_3 + "00000004 0a0b0c"))


def test_a_traceback_shows_the_generated_lines() -> None:
    generate_reader(FetchResponse, 13)(bytes.fromhex("00000000 0000 00000000 01 00"), 0)
    assert "def read(data, position):" in linecache.getline("<read FetchResponse v13>", 1)
