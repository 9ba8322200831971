"""What to do about an error that a broker answers with, where that is not plain from its name."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode

ADVICE: dict[int, str] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "Seek to an offset that is there, or give a position to go on from.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "Create the topic, or correct its name.",
    ErrorCode.MESSAGE_TOO_LARGE: "Send smaller records, or raise max.message.bytes of the topic.",
    ErrorCode.RECORD_LIST_TOO_LARGE: "Send smaller batches, or raise segment.bytes of the topic.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Bring brokers back, or lower min.insync.replicas of the topic.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "Give the consumer an assignor that all members of the group have.",
    ErrorCode.INVALID_SESSION_TIMEOUT: "Keep session_timeout_ms within the broker's group.*.session.timeout.ms.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "Take a member out of the group, or raise group.max.size of the broker.",
    ErrorCode.NON_EMPTY_GROUP: "Stop the members of the group, or wait until their sessions have ended.",
    ErrorCode.GROUP_ID_NOT_FOUND: "Correct the name of the group: see the list of groups.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Stop the members of the group that read the topic.",
    ErrorCode.FENCED_INSTANCE_ID: "Give each running consumer an instance_id of its own.",
    ErrorCode.UNRELEASED_INSTANCE_ID: "Give each running consumer an instance_id of its own.",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "Keep transaction_timeout_ms below the broker's transaction.max.timeout.ms.",
    ErrorCode.PRODUCER_FENCED: "Another producer uses this transactional_id: close one of them.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "Another producer uses this transactional_id: close one of them.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "Choose another codec.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Ask for the right to use the topic.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Ask for the right to use the group.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Ask for the right to use the transactional id.",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "Name an assignor that the broker has, or none.",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "Commit shorter metadata, or raise offset.metadata.max.bytes of the broker.",
}
