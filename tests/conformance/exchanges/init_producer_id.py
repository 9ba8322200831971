"""InitProducerId: ids for idempotent producers, and who owns a transactional id."""

from __future__ import annotations

from tests.conformance.exchange import Exchanges
from tests.conformance.masks import ANOTHER_PRODUCER
from tests.conformance.script import Script
from tests.conformance.transaction_requests import (
    RESULTS,
    Changed,
    Producer,
    await_transaction,
    describe_transactions,
    end,
    ended,
    init,
    init_again,
    ready_producer,
    written,
)

exchanges = Exchanges("init_producer_id")

VERSIONS = range(6)


@exchanges.versions(VERSIONS)
def without_transactions(script: Script, version: int) -> None:
    ready_producer(script)
    script.send(init(None), version)
    script.send(init(None), version)


@exchanges.cases({"-1": -1, "0": 0, "900001": 900_001, "the highest": 2**31 - 1})
def without_transactions_and_a_timeout_of(script: Script, timeout_ms: int) -> None:
    ready_producer(script)
    script.send(init(None, timeout_ms=timeout_ms))


PAIRS = {"an id and an epoch": (4_000_000, 3), "only an id": (5, -1), "only an epoch": (-1, 5), "-2": (-2, -2)}


@exchanges.cases(PAIRS)
def without_transactions_and_with(script: Script, pair: tuple[int, int]) -> None:
    ready_producer(script)
    for version in (3, 5):
        script.send(init(None, producer_id=pair[0], epoch=pair[1]), version)


@exchanges.versions(VERSIONS)
def a_new_transactional_id(script: Script, version: int) -> None:
    ready_producer(script, "other")
    transactional_id = script.transactional_id()
    script.send(init(transactional_id), version)
    script.send(describe_transactions(transactional_id))
    script.send(init(transactional_id, timeout_ms=30_000), version)
    script.send(describe_transactions(transactional_id))


@exchanges.versions(VERSIONS)
def an_empty_transactional_id(script: Script, version: int) -> None:
    ready_producer(script)
    script.send(init(""), version)


@exchanges.cases({"0": 0, "-1": -1, "900001": 900_001, "the highest": 2**31 - 1})
def a_timeout_that_is_refused(script: Script, timeout_ms: int) -> None:
    transactional_id = script.transactional_id()
    for version in (0, 3, 5):
        script.send(init(transactional_id, timeout_ms=timeout_ms), version)


@exchanges.cases({"1": 1, "900000": 900_000})
def a_timeout_that_is_taken(script: Script, timeout_ms: int) -> None:
    ready_producer(script, "other")
    script.send(init(script.transactional_id(), timeout_ms=timeout_ms))


@exchanges.cases(PAIRS)
def a_new_transactional_id_with(script: Script, pair: tuple[int, int]) -> None:
    ready_producer(script, "other")
    for version in (3, 4, 5):
        transactional_id = script.transactional_id(f"transaction {version}")
        script.send(init(transactional_id, producer_id=pair[0], epoch=pair[1]), version)


GIVEN: dict[str, Changed] = {
    "the pair it has": lambda producer: producer,
    "the epoch before": lambda producer: producer._replace(epoch=producer.epoch - 1),
    "two epochs before": lambda producer: producer._replace(epoch=producer.epoch - 2),
    "a later epoch": lambda producer: producer._replace(epoch=producer.epoch + 1),
    "the highest epoch": lambda producer: producer._replace(epoch=32767),
    "another id": lambda producer: producer._replace(id=producer.id + ANOTHER_PRODUCER),
    "only its id": lambda producer: producer._replace(epoch=-1),
    "only its epoch": lambda producer: producer._replace(id=-1),
    "neither": lambda producer: producer._replace(id=-1, epoch=-1),
}


def third_epoch(script: Script) -> Producer:
    producer = ready_producer(script)
    for _ in range(2):
        producer = producer._replace(epoch=script.ask(init(producer.transactional_id)).producer_epoch)
    return producer


@exchanges.cases(GIVEN)
def again_with(script: Script, given: Changed) -> None:
    for version in (3, 4, 5):
        producer = third_epoch(script)
        script.send(init_again(given(producer)), version)
        script.send(describe_transactions(producer.transactional_id))


@exchanges.cases(GIVEN)
def after_a_commit_with(script: Script, given: Changed) -> None:
    producer, topic = third_epoch(script), script.topic()
    written(script, producer, topic)
    producer = ended(script, producer)
    for version in (3, 5):
        script.send(init_again(given(producer)), version)


@exchanges.cases(RESULTS)
def after_an_end_of_the_old_protocol(script: Script, committed: bool) -> None:
    producer, topic = third_epoch(script), script.topic()
    written(script, producer, topic)
    ended(script, producer, committed, 4)
    script.send(init_again(producer))
    script.send(init_again(producer))


@exchanges.versions(VERSIONS)
def while_a_transaction_is_open(script: Script, version: int) -> None:
    producer, topic = ready_producer(script), script.topic()
    written(script, producer, topic)
    script.send(init(producer.transactional_id), version)
    await_transaction(script, producer, "CompleteAbort")
    script.send(describe_transactions(producer.transactional_id))
    script.send(init(producer.transactional_id), version)
    script.send(end(producer), 1)
    script.send(end(producer), 4)
    script.send(end(producer), 5)


@exchanges.cases(GIVEN)
def while_a_transaction_is_open_with(script: Script, given: Changed) -> None:
    producer, topic = third_epoch(script), script.topic()
    written(script, producer, topic)
    script.send(init_again(given(producer)))


@exchanges.one
def with_the_pair_of_an_open_transaction_that_was_fenced(script: Script) -> None:
    producer, topic = ready_producer(script), script.topic()
    written(script, producer, topic)
    script.send(init_again(producer))
    await_transaction(script, producer, "CompleteAbort")
    script.send(init_again(producer))
    script.send(init_again(producer))
    script.send(describe_transactions(producer.transactional_id))
