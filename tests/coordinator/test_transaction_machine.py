"""Transactional ids, state by state. What is expected is what Apache Kafka 4.3.1 answered."""

import itertools

import pytest

from ottla.coordinator.operation import Operation
from ottla.coordinator.transactions.machine import ABORT_TIMER, LOOKED_AT_ONCE, Identity, TransactionSettings
from ottla.coordinator.transactions.transaction import LAST_EPOCH, VERSION_1, VERSION_2, Transaction, TransactionState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.transaction_records import TransactionLogKey, TransactionLogValue
from tests.coordinator.transactions import ID, STATES, T0, T1, VERSIONS, Transactions

FENCED = ErrorCode.PRODUCER_FENCED
OTHER_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING
WRONG_STATE = ErrorCode.INVALID_TXN_STATE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_REQUEST
NONE = ErrorCode.NONE


@pytest.fixture
def transactions() -> Transactions:
    return Transactions()


def jump_to_epoch(transactions: Transactions, epoch: int) -> tuple[int, int]:
    """A transactional id whose producer has had many epochs."""
    transactions.init()
    transaction = transactions[ID]._replace(producer_epoch=epoch)
    key = TransactionLogKey(transactional_id=ID)
    transactions.driver.run(lambda machine, operation: operation.write(key, transaction.to_value(), 1))
    return transactions[ID].producer


# Beginning


def test_each_id_has_a_producer_of_its_own_and_each_beginning_an_epoch(transactions: Transactions) -> None:
    assert transactions.init("a") == (NONE, 0, 0)
    assert transactions.init("b") == (NONE, 1, 0)
    assert transactions.init("a") == (NONE, 0, 1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_has_limits(transactions: Transactions, timeout_ms: int) -> None:
    assert transactions.init(timeout_ms=timeout_ms) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)
    assert transactions.init(timeout_ms=900_000).code is NONE


def test_an_empty_id_is_no_id(transactions: Transactions) -> None:
    assert transactions.init("").code is INVALID
    assert transactions.add((0, 0), transactional_id="") == {T0: INVALID}
    assert transactions.verify((0, 0), transactional_id="") == {T0: INVALID}
    assert transactions.end((0, 0), is_commit=True, transactional_id="").code is INVALID


def test_a_producer_goes_on_after_an_error(transactions: Transactions) -> None:
    producer = transactions.init()[1:]
    assert transactions.init(expected=producer) == (NONE, 0, 1)
    assert transactions.init(expected=producer) == (NONE, 0, 1)  # the answer was lost
    assert transactions.init(expected=(0, 1)) == (NONE, 0, 2)
    for expected in [(0, 0), (0, 3), (1, 2)]:
        assert transactions.init(expected=expected) == (FENCED, -1, -1)


def test_one_who_begins_anew_fences_the_one_before(transactions: Transactions) -> None:
    transactions.init()
    transactions.init()
    assert transactions.init(expected=(0, 0)).code is FENCED
    transactions.driver.crash()
    assert transactions.init(expected=(0, 0)).code is FENCED


def test_an_unknown_id_with_a_producer_is_a_new_one(transactions: Transactions) -> None:
    assert transactions.init(expected=(77, 3)) == (NONE, 0, 0)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_producer_that_missed_the_end_goes_on_with_its_epoch(transactions: Transactions, is_commit: bool) -> None:
    producer = transactions.complete(is_commit=is_commit)
    transactions.driver.crash()
    assert transactions.init(expected=producer) == (NONE, 0, 1)


def test_beginning_aborts_what_is_open(transactions: Transactions) -> None:
    transactions.ongoing()
    assert transactions.init() == (CONCURRENT, -1, -1)
    assert transactions[ID].state is TransactionState.PREPARE_ABORT
    assert transactions.init().code is CONCURRENT
    transactions.write_markers()
    assert transactions.init() == (NONE, 0, 2)


def test_without_producer_ids_one_comes_again_later(transactions: Transactions) -> None:
    transactions.has_ids = False
    assert transactions.init().code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not transactions.driver.log
    transactions.has_ids = True
    producer = jump_to_epoch(transactions, LAST_EPOCH)
    transactions.has_ids = False
    assert transactions.end(producer, is_commit=False).code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert transactions.init().code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert transactions[ID].state is TransactionState.EMPTY


# Taking part


def test_partitions_take_part(transactions: Transactions) -> None:
    producer = transactions.init()[1:]
    assert transactions.verify(producer, [T0]) == {T0: ErrorCode.TRANSACTION_ABORTABLE}
    assert transactions.add(producer, [T0]) == {T0: NONE}
    assert transactions.verify(producer, [T0, T1]) == {T0: NONE, T1: ErrorCode.TRANSACTION_ABORTABLE}
    written = len(transactions.driver.log)
    assert transactions.add(producer, [T0]) == {T0: NONE}
    assert len(transactions.driver.log) == written
    assert transactions.add(producer, [T1]) == {T1: NONE}
    assert transactions[ID].partitions == {T0, T1}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("producer", "code"), [((0, 0), NONE), ((0, 1), FENCED), ((1, 0), OTHER_ID), ((0, -1), FENCED)]
)
def test_only_the_producer_of_the_moment_takes_part(
    transactions: Transactions, version: int, producer: tuple[int, int], code: ErrorCode
) -> None:
    transactions.ongoing(version)
    assert transactions.add(producer, [T0], version=version) == {T0: code}
    assert transactions.verify(producer, [T0]) == {T0: code}
    assert transactions.add(producer, [T0], "nobody", version) == {T0: OTHER_ID}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("state", STATES)
def test_nothing_is_added_while_a_transaction_ends(transactions: Transactions, state: str, version: int) -> None:
    STATES[state](transactions, version)
    expected = CONCURRENT if state.startswith("Prepare") else NONE
    assert transactions.add(transactions[ID].producer, [T1]) == {T1: expected}


def test_a_transaction_begins_with_its_first_partition(transactions: Transactions) -> None:
    producer = transactions.init()[1:]
    transactions.driver.advance(500)
    transactions.add(producer, [T0])
    began_ms = transactions.driver.now_ms
    transactions.driver.advance(500)
    transactions.add(producer, [T1])
    assert (transactions[ID].started_ms, transactions[ID].updated_ms) == (began_ms, began_ms + 500)


# Ending: rows are states, columns to commit and to abort

VERSION_1_ANSWERS = {
    "Empty": (WRONG_STATE, WRONG_STATE),
    "Ongoing": (NONE, NONE),
    "PrepareCommit": (CONCURRENT, WRONG_STATE),
    "PrepareAbort": (WRONG_STATE, CONCURRENT),
    "CompleteCommit": (NONE, WRONG_STATE),
    "CompleteAbort": (WRONG_STATE, NONE),
}
SAME_EPOCH_ANSWERS = {
    "Empty": (WRONG_STATE, NONE),
    "Ongoing": (NONE, NONE),
    "PrepareCommit": (FENCED, FENCED),
    "PrepareAbort": (FENCED, FENCED),
    "CompleteCommit": (WRONG_STATE, NONE),
    "CompleteAbort": (WRONG_STATE, NONE),
}
EPOCH_BEFORE_ANSWERS = {
    "Empty": (FENCED, FENCED),
    "Ongoing": (FENCED, FENCED),
    "PrepareCommit": (CONCURRENT, WRONG_STATE),
    "PrepareAbort": (WRONG_STATE, CONCURRENT),
    "CompleteCommit": (NONE, WRONG_STATE),
    "CompleteAbort": (WRONG_STATE, NONE),
}


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("version", "epochs_behind", "answers"),
    [
        (VERSION_1, 0, VERSION_1_ANSWERS),
        (VERSION_1, 1, dict.fromkeys(STATES, (FENCED, FENCED))),
        (VERSION_1, -1, dict.fromkeys(STATES, (FENCED, FENCED))),
        (VERSION_2, 0, SAME_EPOCH_ANSWERS),
        (VERSION_2, 1, EPOCH_BEFORE_ANSWERS),
        (VERSION_2, 2, dict.fromkeys(STATES, (FENCED, FENCED))),
        (VERSION_2, -1, dict.fromkeys(STATES, (FENCED, FENCED))),
    ],
)
def test_the_end_of_a_transaction(
    transactions: Transactions,
    version: int,
    epochs_behind: int,
    answers: dict[str, tuple[ErrorCode, ErrorCode]],
    state: str,
    is_commit: bool,
    crashes: bool,
) -> None:
    STATES[state](transactions, version)
    if crashes:
        transactions.driver.crash()
    producer_id, epoch = transactions[ID].producer
    answer = transactions.end((producer_id, epoch - epochs_behind), is_commit=is_commit, version=version)
    assert answer.code is answers[state][not is_commit]
    assert transactions.end((producer_id + 1, epoch), is_commit=is_commit, version=version).code is OTHER_ID
    if answer.code is NONE and version == VERSION_2:
        assert answer[1:] == (producer_id, epoch + 1 - epochs_behind)
    else:
        assert answer[1:] == (-1, -1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_commit", [True, False])
def test_markers_go_to_all_partitions_and_then_it_is_over(
    transactions: Transactions, is_commit: bool, version: int
) -> None:
    producer = transactions.ongoing(version)
    transactions.add(producer, [T1], version=version)
    transactions.end(producer, is_commit=is_commit, version=version)
    [markers] = transactions.driver.markers
    assert markers == (ID, 0, int(version == VERSION_2), is_commit, 1, [T0, T1], version)
    transactions.driver.crash()  # before the markers were written, or before that was noted
    assert transactions.driver.markers == [markers, markers._replace(coordinator_epoch=2)]
    transactions.write_markers()
    assert transactions[ID].state is (
        TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    )
    assert not transactions[ID].partitions
    transactions.driver.crash()
    assert not transactions.driver.markers


@pytest.mark.parametrize("version", VERSIONS)
def test_markers_are_sent_once_of_what_is_decided_while_the_rest_is_gone_on_with(
    transactions: Transactions, version: int
) -> None:
    producer = transactions.ongoing(version)
    transactions.driver.holds_work = True
    transactions.driver.crash()
    transactions.end(producer, is_commit=True, version=version)
    transactions.driver.do_work()
    assert len(transactions.driver.markers) == 1


def test_late_word_of_markers_ends_nothing_else(transactions: Transactions) -> None:
    producer = transactions.complete(is_commit=True)
    transactions.add((producer[0], 1), [T1])
    for late in [(0, 1), (0, 0), (7, 1)]:
        transactions.driver.run(
            lambda machine, operation, late=late: machine.markers_written(operation, ID, late)  # type: ignore[misc]
        )
    assert transactions[ID].state is TransactionState.ONGOING


def test_a_late_end_does_not_end_the_next_transaction(transactions: Transactions) -> None:
    """In version 2 it cannot; in version 1 it does, which is the flaw that version 2 is for."""
    producer = transactions.complete(is_commit=True)
    transactions.add((producer[0], producer[1] + 1), [T1])
    assert transactions.end(producer, is_commit=True).code is FENCED
    assert transactions[ID].state is TransactionState.ONGOING
    older = Transactions()
    producer = older.complete(is_commit=True, version=VERSION_1)
    older.add(producer, [T1], version=VERSION_1)
    assert older.end(producer, is_commit=True, version=VERSION_1).code is NONE
    assert older[ID].state is TransactionState.PREPARE_COMMIT


# When the epochs run out


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("crashes", [False, True])
def test_the_next_producer_id_takes_over(transactions: Transactions, is_commit: bool, crashes: bool) -> None:
    last = jump_to_epoch(transactions, LAST_EPOCH)
    transactions.add(last, [T0])
    assert transactions.end(last, is_commit=is_commit) == (NONE, 1, 0)
    if crashes:
        transactions.driver.crash()
    assert transactions[ID].producer == (0, LAST_EPOCH + 1)
    assert transactions.end(last, is_commit=is_commit).code is CONCURRENT
    for expected in ((1, 0), None):  # it was told, but it is not yet in force
        assert transactions.init(expected=expected).code is CONCURRENT
    assert transactions.add((1, 0), [T1]) == {T1: CONCURRENT}
    transactions.write_markers()
    if crashes:
        transactions.driver.crash()
    assert transactions[ID].producer == (1, 0)
    assert transactions.end(last, is_commit=is_commit) == (NONE, 1, 0)
    assert transactions.end(last, is_commit=not is_commit).code is WRONG_STATE
    assert transactions.init(expected=last) == (NONE, 1, 0)
    assert transactions.add((1, 0), [T1]) == {T1: NONE}
    assert transactions.end(last, is_commit=is_commit).code is OTHER_ID


def test_who_begins_with_the_last_epoch_gets_another_id(transactions: Transactions) -> None:
    last = jump_to_epoch(transactions, LAST_EPOCH)
    assert transactions.init(expected=last) == (NONE, 1, 0)
    assert transactions.init(expected=last) == (NONE, 1, 0)
    assert transactions.init() == (NONE, 1, 1)


# Time


def test_what_takes_too_long_is_aborted(transactions: Transactions) -> None:
    transactions.init(timeout_ms=1000)
    producer = transactions.init(timeout_ms=1000)[1:]
    transactions.add(producer)
    transactions.driver.advance(9_999)
    assert transactions[ID].state is TransactionState.ONGOING  # nobody has looked yet
    transactions.driver.advance(1)
    assert transactions[ID].state is TransactionState.PREPARE_ABORT
    transactions.write_markers()
    assert transactions.end(producer, is_commit=True).code is WRONG_STATE
    assert transactions.end(producer, is_commit=False) == (NONE, 0, 2)
    for is_commit in (True, False):
        assert transactions.end(producer, is_commit=is_commit, version=VERSION_1).code is FENCED
    assert transactions.add(producer) == {T0: FENCED}
    assert transactions.init(expected=producer) == (NONE, 0, 2)


def test_time_goes_on_after_a_crash(transactions: Transactions) -> None:
    transactions.ongoing()
    transactions.driver.advance(50_000)
    transactions.driver.crash()
    transactions.driver.advance(10_000)
    assert transactions[ID].state is TransactionState.PREPARE_ABORT


@pytest.mark.parametrize("state", STATES)
def test_ids_that_nobody_uses_are_forgotten(state: str) -> None:
    transactions = Transactions(TransactionSettings(abort_interval_ms=1 << 40))
    STATES[state](transactions, VERSION_2)
    transactions.driver.advance(604_800_000 - 1)
    assert ID in transactions.driver.machine.transactions
    transactions.driver.advance(3_600_000)
    is_used = state == "Ongoing" or state.startswith("Prepare")
    assert (ID in transactions.driver.machine.transactions) == is_used
    transactions.driver.crash()
    assert (ID in transactions.driver.machine.transactions) == is_used


def test_many_are_dealt_with_in_turns(transactions: Transactions) -> None:
    count = 3 * LOOKED_AT_ONCE
    for number in range(count):
        producer = transactions.init(str(number), timeout_ms=1)[1:]
        transactions.add(producer, transactional_id=str(number))
    machine = transactions.driver.machine
    operation = Operation(machine, transactions.driver.now_ms + 10_000)
    machine.expired(operation, ABORT_TIMER)
    assert not operation.records
    ended = []
    for event in itertools.chain.from_iterable(operation.work):
        step = Operation(machine, operation.now_ms)
        event(step)
        ended.append(len(step.markers))
    assert ended == [LOOKED_AT_ONCE] * 3


# What is written


def test_records_are_those_of_kafka() -> None:
    """The steps of three transactions, of both versions, as 4.3.1 wrote them (but for the order of partitions)."""
    transactions = Transactions()
    producer = transactions.complete(is_commit=True)
    transactions.end((producer[0], 1), is_commit=False)
    transactions.write_markers()
    transactions.add((producer[0], 2), version=VERSION_1)
    transactions.end((producer[0], 2), is_commit=False, version=VERSION_1)
    values = [value for _, value in transactions.driver.records() if isinstance(value, TransactionLogValue)]
    assert [(value.transaction_status, value.producer_epoch, value.client_transaction_version) for value in values] == [
        (0, 0, 0),
        (1, 0, 2),
        (2, 1, 2),
        (4, 1, 2),
        (3, 2, 2),
        (5, 2, 2),
        (1, 2, 0),
        (3, 2, 0),
    ]
    assert {(value.producer_id, value.previous_producer_id, value.next_producer_id) for value in values} == {(0, 0, -1)}
    assert [value.transaction_partitions is None for value in values] == [True] + [False] * 7
    assert [bool(value.transaction_partitions) for value in values] == [0, 1, 1, 0, 0, 0, 1, 1]
    assert [value.transaction_start_timestamp_ms == -1 for value in values] == [True] + [False] * 7
    assert {logged.value[:2] for logged in transactions.driver.log if logged.value} == {b"\x00\x01"}


def test_a_step_that_is_none_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="cannot go from"):
        Transaction(ID, 0).completed(1)


def test_what_could_not_be_written_was_not_said(transactions: Transactions) -> None:
    producer = transactions.ongoing()
    transactions.driver.is_broken = True
    asked = transactions.driver.ask(
        lambda machine, operation, reply: machine.end(operation, reply, ID, producer, is_commit=True, version=VERSION_2)
    )
    assert asked.refused is not None
    assert transactions[ID].state is TransactionState.ONGOING
    assert not transactions.driver.markers
    assert transactions.end(producer, is_commit=True) == Identity(NONE, 0, 1)
