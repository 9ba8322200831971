"""What becomes of a request to end a transaction, by the state it finds: as tables, one for each version."""

from __future__ import annotations

import enum

from ottla.coordinator.transactions.transaction import COMPLETE, LAST_EPOCH, VERSION_2, Transaction, TransactionState
from ottla.wire.errors import ErrorCode


class Ending(enum.Enum):
    PREPARE = "it is ended now"
    DONE = "it has ended so already"
    WAIT = "it is being ended so"
    WRONG = "it cannot be ended so"


_Table = dict[TransactionState, tuple[Ending, Ending]]  # to commit, to abort

PREPARE, DONE, WAIT, WRONG = Ending.PREPARE, Ending.DONE, Ending.WAIT, Ending.WRONG

VERSION_1_ENDINGS: _Table = {
    TransactionState.EMPTY: (WRONG, WRONG),
    TransactionState.ONGOING: (PREPARE, PREPARE),
    TransactionState.PREPARE_COMMIT: (WAIT, WRONG),
    TransactionState.PREPARE_ABORT: (WRONG, WAIT),
    TransactionState.COMPLETE_COMMIT: (DONE, WRONG),
    TransactionState.COMPLETE_ABORT: (WRONG, DONE),
}
"""The epoch stays, so a request that comes again looks like the first."""

CURRENT_ENDINGS: _Table = {
    TransactionState.EMPTY: (WRONG, PREPARE),
    TransactionState.ONGOING: (PREPARE, PREPARE),
    TransactionState.COMPLETE_COMMIT: (WRONG, PREPARE),
    TransactionState.COMPLETE_ABORT: (WRONG, PREPARE),
}
"""Version 2, with the current epoch. To abort is always right: what the client wrote may not have come through."""

REPEATED_ENDINGS: _Table = {
    TransactionState.PREPARE_COMMIT: (WAIT, WRONG),
    TransactionState.PREPARE_ABORT: (WRONG, WAIT),
    TransactionState.COMPLETE_COMMIT: (DONE, WRONG),
    TransactionState.COMPLETE_ABORT: (WRONG, DONE),
}
"""Version 2, with the epoch before: the transaction that has that epoch was ended, and the answer was lost."""


def decide_ending(
    transaction: Transaction, producer: tuple[int, int], version: int, *, is_commit: bool
) -> Ending | ErrorCode:
    """What to do, or the error of one who may not ask."""
    producer_id, producer_epoch = producer
    if version < VERSION_2:
        if producer_id != transaction.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer_epoch != transaction.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        endings = VERSION_1_ENDINGS.get(transaction.state)
    else:
        is_of_former_id = _is_of_former_id(transaction, producer)
        if producer_id != transaction.producer_id and not is_of_former_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if is_of_former_id or producer_epoch + 1 == transaction.producer_epoch:
            endings = REPEATED_ENDINGS.get(transaction.state)
        elif producer_epoch == transaction.producer_epoch:
            endings = CURRENT_ENDINGS.get(transaction.state)
        else:
            endings = None
    return ErrorCode.PRODUCER_FENCED if endings is None else endings[not is_commit]


def _is_of_former_id(transaction: Transaction, producer: tuple[int, int]) -> bool:
    """Whether the producer asks with the last epoch of the id that its transaction has used up."""
    return (
        producer == (transaction.previous_producer_id, LAST_EPOCH)
        and transaction.producer_epoch == 0
        and transaction.state in COMPLETE
    )
