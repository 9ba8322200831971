"""Producers that have come to the last of their epochs: what follows it, in both versions of transactions.

There is no shorter way to it than to begin anew for so many times, so one producer serves for several questions.
"""

from __future__ import annotations

from tests.conformance.exchange import Exchanges
from tests.conformance.script import Script
from tests.conformance.transaction_requests import (
    ABORT,
    COMMIT,
    Producer,
    add_partitions,
    await_transaction,
    describe_transactions,
    end,
    init,
    init_again,
    ready_producer,
    write,
    written,
)

exchanges = Exchanges("used_up_epochs")

LAST_EPOCH = 32766
AT_ONCE = 64


def last_epoch(script: Script) -> Producer:
    producer = ready_producer(script)
    while left := LAST_EPOCH - producer.epoch:
        answer = script.ask_times(init(producer.transactional_id), min(left, AT_ONCE))
        producer = producer._replace(epoch=answer.producer_epoch)
    return producer


def show(script: Script, producer: Producer) -> None:
    script.send(describe_transactions(producer.transactional_id))


@exchanges.one
def transactions_of_version_2(script: Script) -> None:
    topic, producer = script.topic(), last_epoch(script)
    written(script, producer, topic)
    answer = script.send(end(producer, COMMIT), 5)
    await_transaction(script, producer, "CompleteCommit")
    show(script, producer)
    script.send(end(producer, COMMIT), 5)  # the answer was lost
    script.send(end(producer, ABORT), 5)
    script.send(write(producer, topic, 1), 12)
    after = producer._replace(id=answer.producer_id, epoch=answer.producer_epoch)
    written(script, after, topic)
    script.send(end(producer, COMMIT), 5)
    script.send(end(after, ABORT), 5)
    await_transaction(script, producer, "CompleteAbort")
    show(script, producer)
    script.send(init_again(producer))
    script.send(init_again(after._replace(epoch=after.epoch + 1)))


@exchanges.one
def transactions_of_version_1(script: Script) -> None:
    topic, producer = script.topic(), last_epoch(script)
    for result, state in ((COMMIT, "CompleteCommit"), (ABORT, "CompleteAbort")):
        script.send(add_partitions(producer, {topic.name: [0]}, version=3), 3)
        script.send(write(producer, topic, int(not result)), 11)
        script.send(end(producer, result), 4)
        await_transaction(script, producer, state)
        show(script, producer)
    script.send(add_partitions(producer, {topic.name: [0]}, version=3), 3)
    script.send(init(producer.transactional_id))  # aborts what is open
    await_transaction(script, producer, "CompleteAbort")
    script.send(write(producer, topic, 2), 11)
    script.send(end(producer, COMMIT), 4)
    script.send(init(producer.transactional_id))
    show(script, producer)


@exchanges.one
def one_who_begins_anew(script: Script) -> None:
    producer = last_epoch(script)
    script.send(init_again(producer._replace(epoch=LAST_EPOCH - 1)))
    script.send(init_again(producer))
    script.send(init_again(producer))  # the answer was lost
    show(script, producer)
    script.send(init(producer.transactional_id))
    script.send(init_again(producer))
    show(script, producer)
