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


# Answers that leave open whether the batch was appended, or has been on one replica and not on another.
_UNCERTAIN_CODES = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
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
        if error.code in _UNCERTAIN_CODES:
            return Verdict.UNCERTAIN if error.is_retriable else Verdict.GIVEN_UP
        return Verdict.RETRY if error.is_retriable else Verdict.REFUSED
    if isinstance(error, BrokerUnreachable):  # nothing was sent
        return Verdict.RETRY
    if isinstance(error, InvalidRecord):  # it could not even be encoded
        return Verdict.REFUSED
    return Verdict.UNCERTAIN if error.is_retriable else Verdict.GIVEN_UP
