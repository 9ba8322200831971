"""What the error codes of coordinators and leaders mean for a transaction."""

from __future__ import annotations

from ottla.client.errors import ServerError
from ottla.wire.errors import ErrorCode

FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
# Answers that decide about a commit: it was not made, and will not be. After any other error it may have been.
NOT_COMMITTED = (
    *FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_VERSION,
)
# What a broker says to records of a transaction that the coordinator has ended already.
OF_AN_ENDED_ONE = (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH)
NOT_A_MEMBER = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
)


def is_settled(code: int) -> bool:
    """Whether trying again would not change it."""
    return not ServerError(code).is_retriable


def is_settled_commit(code: int) -> bool:
    return code in NOT_COMMITTED
