"""What can be said of a ConsumerGroupHeartbeat without looking at any group, in Kafka's words."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.coordinator.consumer.member import AWAY_EPOCH, LEFT_EPOCH, NEW_EPOCH
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

FIRST_VERSION_WITH_OWN_IDS = 1
"""In which members choose their ids themselves."""
MOST_NAMES = 10_000
"""Of topics that a member subscribes to. Each heartbeat that changes them looks at all of them."""


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    epoch = request.member_epoch
    if not request.member_id and (version >= FIRST_VERSION_WITH_OWN_IDS or epoch > NEW_EPOCH or epoch == LEFT_EPOCH):
        raise _invalid("MemberId can't be empty.")
    if not request.group_id:
        raise _invalid("GroupId can't be empty.")
    if request.instance_id == "":
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id == "":
        raise _invalid("RackId can't be empty.")
    if request.subscribed_topic_names is not None and len(request.subscribed_topic_names) > MOST_NAMES:
        raise _invalid(f"SubscribedTopicNames has more than {MOST_NAMES} names. Use SubscribedTopicRegex.")
    if epoch == NEW_EPOCH:
        _check_join(request)
    elif epoch == AWAY_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < AWAY_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
