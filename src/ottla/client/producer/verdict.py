"""What the answer to a batch means for it: the table that the queue of its partition goes by."""

from __future__ import annotations

import enum

from ottla.client.errors import BrokerUnreachable, ClientError, InvalidRecord, ServerError
from ottla.wire.errors import ErrorCode


class Verdict(enum.Enum):
    WRITTEN = "it is in the log"
    RETRY = "it is not in the log, and may be later"
    UNCERTAIN = "it may be in the log: only the same batch under the same numbers may be sent again"
    OUT_OF_STEP = "it is not in the log, for its numbers are not those that the log expects"
    TOO_LARGE = "it is not in the log, and its halves may be"
    REFUSED = "it is not in the log, and never will be"
    GIVEN_UP = "it may be in the log, and nobody will know"


# What a broker says before it appends anything. After any other error that may pass the batch can be in the log: also
# NOT_LEADER_OR_FOLLOWER is said to what was appended, and waited for its replicas when the leader changed.
_NOT_APPENDED = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
_BY_CODE = {
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Verdict.WRITTEN,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Verdict.OUT_OF_STEP,
    ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.OUT_OF_STEP,
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.OUT_OF_STEP,
    ErrorCode.MESSAGE_TOO_LARGE: Verdict.TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE: Verdict.TOO_LARGE,
}


def verdict_on(error: ClientError | None) -> Verdict:
    if error is None:
        return Verdict.WRITTEN
    if isinstance(error, ServerError):
        found = _BY_CODE.get(error.code)  # type: ignore[call-overload]
        if found is not None:
            return found  # type: ignore[no-any-return]
        if error.is_retriable:
            return Verdict.RETRY if error.code in _NOT_APPENDED else Verdict.UNCERTAIN
        return Verdict.GIVEN_UP if error.code == ErrorCode.UNKNOWN_SERVER_ERROR else Verdict.REFUSED
    if isinstance(error, BrokerUnreachable):  # nothing was sent
        return Verdict.RETRY
    if isinstance(error, InvalidRecord):  # it could not even be encoded
        return Verdict.REFUSED
    return Verdict.UNCERTAIN if error.is_retriable else Verdict.GIVEN_UP
