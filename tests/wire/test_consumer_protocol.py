from __future__ import annotations

import pytest

from ottla.wire.errors import ProtocolError
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
)
from ottla.wire.messages.control_records import COMMIT, ControlRecordTypeSchema, EndTxnMarker
from ottla.wire.versioned import decode_versioned, encode_versioned

SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=["t"],
    user_data=b"u",
    owned_partitions=[TopicPartition(topic="t", partitions=[1])],
    generation_id=5,
    rack_id="r",
)


def test_a_subscription_in_bytes() -> None:
    # version 3; 1 topic; 1 byte of user data; 1 topic owned with partition 1; generation 5; rack "r"
    written = encode_versioned(SUBSCRIPTION, 3)
    assert written.hex() == (
        "0003 00000001 0001 74 00000001 75 00000001 0001 74 00000001 00000001 00000005 0001 72"
    ).replace(" ", "")
    assert decode_subscription(written) == SUBSCRIPTION


def test_older_versions_leave_out_what_they_do_not_know() -> None:
    assert decode_subscription(encode_versioned(SUBSCRIPTION, 0)) == ConsumerProtocolSubscription(
        topics=["t"], user_data=b"u"
    )


def test_a_version_from_the_future_is_read_as_the_highest_known() -> None:
    future = b"\0\x09" + encode_versioned(SUBSCRIPTION, 3)[2:] + b"what came later"
    assert decode_subscription(future) == SUBSCRIPTION
    assignment = ConsumerProtocolAssignment(assigned_partitions=[])
    assert decode_assignment(b"\0\x09" + encode_versioned(assignment, 3)[2:]) == assignment


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\0", b"\0\0\0\0\0\1"])
def test_what_is_no_subscription_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_subscription(data)


def test_control_records_are_those_of_kafka() -> None:
    # As Apache Kafka 4.3.1 writes them: version 0, type 1; version 0, coordinator epoch 5.
    assert encode_versioned(ControlRecordTypeSchema(type=COMMIT), 0).hex() == "00000001"
    assert encode_versioned(EndTxnMarker(coordinator_epoch=5), 0).hex() == "000000000005"
    newer = bytes.fromhex("0001 00000005 ff")
    assert decode_versioned(EndTxnMarker, newer, newer_as_highest=True) == EndTxnMarker(coordinator_epoch=5)
