"""ApiVersions, and frames that are no requests."""

from __future__ import annotations

import struct

from ottla.wire import apis
from ottla.wire.frames import encode_request
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.schema import Request
from tests.conformance.batches import plain
from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import commit, enter, join
from tests.conformance.requests import UNKNOWN, fetch_from, list_offsets, metadata, produce
from tests.conformance.script import Script
from tests.conformance.transaction_requests import Producer, end

exchanges = Exchanges("frames")


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int, client_id: bytes | None = b"c", tags: bytes = b"") -> bytes:
    length = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", key, version, 7, length) + (client_id or b"") + tags


def api_versions_request(name: str = "ottla", version: str = "1.0") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


@exchanges.versions((0, 1, 2, 3, 4))
def api_versions(script: Script, version: int) -> None:
    script.send(api_versions_request(), version)


@exchanges.cases({"5": 5, "99": 99, "32767": 32767, "-1": -1})
def api_versions_in_an_unknown_version(script: Script, version: int) -> None:
    frame = framed(header(apis.API_VERSIONS.key, version))
    script.send_bytes(f"ApiVersions {version}", frame, answered_as=(apis.API_VERSIONS, 0))


@exchanges.one
def api_versions_goes_on_after_an_unknown_version(script: Script) -> None:
    frame = framed(header(apis.API_VERSIONS.key, 99))
    script.send_bytes("ApiVersions 99", frame, answered_as=(apis.API_VERSIONS, 0))
    script.send(metadata(UNKNOWN.name))


SOFTWARE = {
    "no name": ("", "1"),
    "no version": ("a", ""),
    "a name that starts with a hyphen": ("-a", "1"),
    "a name that ends with a dot": ("a.", "1"),
    "a name with a space": ("a b", "1"),
    "a version with a slash": ("a", "1/2"),
    "a name with a hyphen": ("a-b.c", "1.0-rc.1"),
    "one letter each": ("a", "1"),
    "a name that is not ASCII": ("größe", "1"),
}


@exchanges.cases(SOFTWARE)
def api_versions_from_a_software_with(script: Script, software: tuple[str, str]) -> None:
    script.send(api_versions_request(*software), 3)


@exchanges.cases({"null": None, "empty": "", "long": "c" * 1000, "not ASCII": "größe"})
def a_client_id(script: Script, client_id: str | None) -> None:
    script.send(metadata(UNKNOWN.name), client_id=client_id)


UNKNOWN_APIS = {
    "an API that never was": (999, 0),
    "a negative API": (-1, 0),
    "LeaderAndIsr": (4, 0),
    "StopReplica": (5, 0),
    "UpdateMetadata": (6, 0),
    "ControlledShutdown": (7, 0),
    "Vote, of controllers": (52, 0),
    "Envelope, of controllers": (58, 0),
    "BrokerRegistration, of controllers": (62, 0),
    "Produce 14": (0, 14),
    "Produce -1": (0, -1),
    "Fetch 3": (1, 3),
    "Fetch 19": (1, 19),
    "ListOffsets 0": (2, 0),
    "ListOffsets 12": (2, 12),
    "Metadata 14": (3, 14),
    "CreateTopics 1": (19, 1),
    "CreateTopics 8": (19, 8),
    "DeleteTopics 0": (20, 0),
    "DescribeConfigs 0": (32, 0),
    "DescribeLogDirs 0": (35, 0),
    "OffsetForLeaderEpoch 1": (23, 1),
    "DescribeCluster 3": (60, 3),
    "DescribeTopicPartitions 1": (75, 1),
}


COORDINATED = (
    apis.OFFSET_COMMIT, apis.OFFSET_FETCH, apis.FIND_COORDINATOR, apis.JOIN_GROUP, apis.HEARTBEAT, apis.LEAVE_GROUP,
    apis.SYNC_GROUP, apis.DESCRIBE_GROUPS, apis.LIST_GROUPS, apis.DELETE_GROUPS, apis.OFFSET_DELETE,
    apis.CONSUMER_GROUP_HEARTBEAT, apis.CONSUMER_GROUP_DESCRIBE, apis.INIT_PRODUCER_ID, apis.ADD_PARTITIONS_TO_TXN,
    apis.ADD_OFFSETS_TO_TXN, apis.END_TXN, apis.WRITE_TXN_MARKERS, apis.TXN_OFFSET_COMMIT, apis.DESCRIBE_PRODUCERS,
    apis.DESCRIBE_TRANSACTIONS, apis.LIST_TRANSACTIONS,
)  # fmt: skip


@exchanges.cases({api.name: api for api in COORDINATED})
def a_version_beyond_those_of(script: Script, api: apis.Api) -> None:
    for version in (api.least - 1, api.highest + 1):
        frame = framed(header(api.key, version, tags=b"\0") + bytes(40))
        script.send_bytes(f"{api.name} {version}", frame, on=f"{version}")


@exchanges.cases(UNKNOWN_APIS)
def an_unknown(script: Script, asked: tuple[int, int]) -> None:
    script.send_bytes("a frame", framed(header(*asked, tags=b"\0") + bytes(40)))


METADATA_1 = header(apis.METADATA.key, 1)
METADATA_9 = header(apis.METADATA.key, 9, tags=b"\0")
ONE_NAME = struct.pack(">ih", 1, 1) + b"x"

BROKEN = {
    "a size of 0": struct.pack(">i", 0),
    "a size of -1": struct.pack(">i", -1),
    "the least size": struct.pack(">i", -(2**31)),
    "a size above 100 MiB": struct.pack(">i", 100 * 1024 * 1024 + 1),
    "the highest size": struct.pack(">i", 2**31 - 1),
    "one byte": framed(b"\0"),
    "half a header": framed(METADATA_1[:6]),
    "a client id beyond the frame": framed(struct.pack(">hhih", 3, 1, 7, 500)),
    "a client id of length -2": framed(struct.pack(">hhih", 3, 1, 7, -2) + struct.pack(">i", 0)),
    "a client id that is not UTF-8": framed(header(3, 1, b"\xff\xfe") + struct.pack(">i", 0)),
    "no body": framed(METADATA_1),
    "a body cut short": framed(METADATA_1 + ONE_NAME[:-1]),
    "a negative string length": framed(METADATA_1 + struct.pack(">ih", 1, -1)),
    "a negative string length of -2": framed(METADATA_1 + struct.pack(">ih", 1, -2)),
    "an array larger than the frame": framed(METADATA_1 + struct.pack(">i", 1_000_000)),
    "the largest array": framed(METADATA_1 + struct.pack(">i", 2**31 - 1)),
    "a string that is not UTF-8": framed(METADATA_1 + struct.pack(">ih", 1, 2) + b"\xc3\x28"),
    "a null name in a compact string": framed(METADATA_9 + b"\x02\x00\x00\x00\x00\x00\x00"),
    "an endless varint": framed(METADATA_9 + b"\xff" * 10),
    "a header without its tags": framed(header(apis.METADATA.key, 9)),
    "tags cut short": framed(METADATA_9 + b"\x01\x00\x00\x00\x05"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("160301020001000001fc0303") + bytes(64),
}


@exchanges.cases(BROKEN)
def a_broken_frame(script: Script, data: bytes) -> None:
    script.send_bytes("bytes", data, answered_as=(apis.METADATA, 1), within_s=1.0)


METADATA_ANSWERS = {
    "bytes behind the body": (1, METADATA_1 + ONE_NAME + b"more"),
    "tags in the header": (9, header(3, 9, tags=b"\x01\x63\x02xy") + b"\x01\0\0\0\0"),
    "tags behind the body": (9, METADATA_9 + b"\x01\0\0\0\x01\x63\x02xy"),
    "tags out of order": (9, METADATA_9 + b"\x01\0\0\0\x02\x63\x00\x62\x00"),
    "a boolean of 2": (4, header(3, 4) + struct.pack(">ib", 0, 2)),
}


@exchanges.cases(METADATA_ANSWERS)
def an_odd_frame(script: Script, asked: tuple[int, bytes]) -> None:
    version, frame = asked
    script.send_bytes("Metadata", framed(frame), answered_as=(apis.METADATA, version))


@exchanges.one
def an_array_of_length_minus_two_asks_for_all(script: Script) -> None:
    script.topic()
    frame = framed(METADATA_1 + struct.pack(">i", -2))
    script.send_bytes("Metadata 1", frame, answered_as=(apis.METADATA, 1), only_own=True)


@exchanges.cases({"in its size": 2, "in its header": 9, "in its body": 20})
def a_frame_that_ends(script: Script, size_bytes: int) -> None:
    script.send_bytes("a part of a frame", framed(METADATA_1 + ONE_NAME)[:size_bytes], and_end=True)


@exchanges.one
def a_frame_byte_by_byte(script: Script) -> None:
    frame = framed(METADATA_1 + struct.pack(">i", 0))
    for position in range(len(frame) - 1):
        script.post_bytes(frame[position : position + 1])
    script.send_bytes("Metadata 1", frame[-1:], answered_as=(apis.METADATA, 1))


CUT: dict[str, tuple[Request, int]] = {
    "Produce": (produce(UNKNOWN, plain(1)), 12),
    "Fetch": (fetch_from(UNKNOWN), 17),
    "ListOffsets": (list_offsets(UNKNOWN, -1), 11),
    "Metadata": (metadata(UNKNOWN.name), 13),
    "JoinGroup": (join("nobody"), 9),
    "OffsetCommit": (commit("nobody", UNKNOWN), 10),
    "ConsumerGroupHeartbeat": (enter("nobody", "member", "topic"), 1),
    "EndTxn": (end(Producer("nobody", 1, 1)), 5),
}


@exchanges.cases(CUT)
def a_request_cut_short(script: Script, asked: tuple[Request, int]) -> None:
    request, version = asked
    frame = b"".join(bytes(part) for part in encode_request(1, "c", request, version))  # type: ignore[arg-type]
    script.send_bytes(f"half of {request.api.name}", framed(frame[4 : len(frame) - 8]))


@exchanges.one
def others_are_not_harmed_by_a_broken_frame(script: Script) -> None:
    script.send(metadata(UNKNOWN.name), on="working")
    script.send_bytes("bytes", struct.pack(">i", -1), on="broken")
    script.send(metadata(UNKNOWN.name), on="working")


@exchanges.one
def requests_before_a_broken_frame_are_answered(script: Script) -> None:
    script.send(metadata(UNKNOWN.name))
    script.send_bytes("bytes", framed(b"\0"))
