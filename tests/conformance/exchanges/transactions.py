"""AddPartitionsToTxn and EndTxn: every state, every repetition and every wrong order."""

from __future__ import annotations

from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from tests.conformance.exchange import Exchanges
from tests.conformance.script import Script
from tests.conformance.transaction_requests import (
    ABORT,
    COMMIT,
    OTHERS,
    RESULTS,
    Changed,
    Producer,
    add_offsets,
    add_partitions,
    await_transaction,
    commit_offsets,
    describe_transactions,
    end,
    ended,
    init,
    ready_producer,
    second_epoch,
    write,
    written,
)

exchanges = Exchanges("transactions")

ADD_VERSIONS = range(6)
END_VERSIONS = range(6)


def show(script: Script, producer: Producer) -> None:
    script.send(describe_transactions(producer.transactional_id))


@exchanges.versions(ADD_VERSIONS)
def partitions_are_added(script: Script, version: int) -> None:
    producer, topic, other = ready_producer(script), script.topic(partitions=3), script.topic("other")
    script.send(add_partitions(producer, {topic.name: [0, 2]}, version=version), version)
    show(script, producer)
    script.send(add_partitions(producer, {topic.name: [0, 1], other.name: [0]}, version=version), version)
    show(script, producer)


@exchanges.versions(ADD_VERSIONS)
def partitions_that_are_not_there(script: Script, version: int) -> None:
    producer, topic = ready_producer(script), script.topic()
    bad = {topic.name: [0, 7], "nobody-made-this": [0], "": [1]}
    script.send(add_partitions(producer, bad, version=version), version)
    show(script, producer)


@exchanges.versions(ADD_VERSIONS)
def no_partitions(script: Script, version: int) -> None:
    producer, topic = ready_producer(script), script.topic()
    script.send(add_partitions(producer, {}, version=version), version, within_s=1.0)
    script.send(add_partitions(producer, {topic.name: []}, version=version), version, within_s=1.0)
    show(script, producer)


@exchanges.one
def the_same_partition_twice(script: Script) -> None:
    producer, topic = ready_producer(script), script.topic()
    script.send(add_partitions(producer, {topic.name: [0, 0]}, version=3), 3)
    show(script, producer)


WRONG_PRODUCERS: dict[str, Changed] = {
    **OTHERS,
    "producer id -1": lambda producer: producer._replace(id=-1),
    "epoch -1": lambda producer: producer._replace(epoch=-1),
}


@exchanges.cases(WRONG_PRODUCERS)
def partitions_are_added_by(script: Script, changed: Changed) -> None:
    producer, topic = second_epoch(script), script.topic()
    for version in (0, 1, 2, 3, 4, 5):
        script.send(add_partitions(changed(producer), {topic.name: [0]}, version=version), version)
    show(script, producer)


@exchanges.cases(WRONG_PRODUCERS)
def partitions_are_verified_for(script: Script, changed: Changed) -> None:
    producer, topic = second_epoch(script), script.topic()
    script.ask(add_partitions(producer, {topic.name: [0]}))
    for version in (4, 5):
        script.send(add_partitions(changed(producer), {topic.name: [0]}, verify_only=True), version)


@exchanges.versions((4, 5))
def partitions_are_verified(script: Script, version: int) -> None:
    producer, topic = ready_producer(script), script.topic(partitions=2)
    script.send(add_partitions(producer, {topic.name: [0]}, verify_only=True), version)
    script.ask(add_partitions(producer, {topic.name: [0]}))
    script.send(add_partitions(producer, {topic.name: [0, 1]}, verify_only=True), version)
    script.send(add_partitions(producer, {topic.name: [0]}, verify_only=True), version)
    script.send(add_partitions(producer, {"nobody-made-this": [0]}, verify_only=True), version)
    show(script, producer)


@exchanges.versions((4, 5))
def several_transactions_in_one_request(script: Script, version: int) -> None:
    one, two, topic = ready_producer(script, "one"), ready_producer(script, "two"), script.topic()
    nobody = Producer(script.transactional_id("nobody"), 5, 0)
    transactions = [add_partitions(producer, {topic.name: [0]}).transactions[0] for producer in (one, nobody, two)]
    script.send(AddPartitionsToTxnRequest(transactions=transactions), version)


@exchanges.versions((4, 5))
def no_transactions_in_one_request(script: Script, version: int) -> None:
    ready_producer(script)
    script.send(AddPartitionsToTxnRequest(transactions=[]), version, within_s=0.5)


@exchanges.one
def partitions_are_verified_and_added_in_one_request(script: Script) -> None:
    one, two, topic = ready_producer(script, "one"), ready_producer(script, "two"), script.topic()
    [adding] = add_partitions(one, {topic.name: [0]}).transactions
    [asking] = add_partitions(two, {topic.name: [0]}, verify_only=True).transactions
    script.send(AddPartitionsToTxnRequest(transactions=[adding, asking]))
    show(script, one)
    show(script, two)


@exchanges.cases({"a bad partition": 7, "another bad one": -1})
def verified_partitions_that_are_not_there(script: Script, partition: int) -> None:
    producer, topic = ready_producer(script), script.topic()
    script.ask(add_partitions(producer, {topic.name: [0]}))
    script.send(add_partitions(producer, {topic.name: [0, partition]}, verify_only=True))


@exchanges.versions(END_VERSIONS)
def partitions_are_added_after_the_end(script: Script, version: int) -> None:
    producer, topic = ready_producer(script), script.topic()
    script.ask(add_partitions(producer, {topic.name: [0]}))
    producer = ended(script, producer, COMMIT, version)
    script.send(add_partitions(producer, {topic.name: [0]}, version=3), 3)
    show(script, producer)


@exchanges.cases({f"{name}, version {version}": (result, version) for name, result in RESULTS.items()
                  for version in END_VERSIONS})  # fmt: skip
def an_end(script: Script, case: tuple[bool, int]) -> None:
    committed, version = case
    producer, topic = ready_producer(script), script.topic()
    script.ask(add_partitions(producer, {topic.name: [0]}))
    script.send(end(producer, committed), version)
    await_transaction(script, producer, "CompleteCommit" if committed else "CompleteAbort")
    show(script, producer)


REPEATED = {
    f"{first} and then {then}, version {version}": (RESULTS[first], RESULTS[then], version)
    for first in RESULTS
    for then in RESULTS
    for version in (0, 1, 2, 4, 5)
}


@exchanges.cases(REPEATED)
def an_end_again(script: Script, case: tuple[bool, bool, int]) -> None:
    first, then, version = case
    producer, topic = ready_producer(script), script.topic()
    script.ask(add_partitions(producer, {topic.name: [0]}))
    after = ended(script, producer, first, version)
    script.send(end(producer, then), version)
    if after != producer:
        script.send(end(after, then), version)
        script.send(end(producer, then), 4)


@exchanges.cases({f"{name}, version {version}": (result, version) for name, result in RESULTS.items()
                  for version in (0, 1, 2, 4, 5)})  # fmt: skip
def an_end_of_nothing(script: Script, case: tuple[bool, int]) -> None:
    committed, version = case
    producer = ready_producer(script)
    answer = script.send(end(producer, committed), version)
    show_settled(script, producer)
    if answer.error_code == 0:
        after = producer._replace(epoch=answer.producer_epoch)
        script.send(end(producer, committed), version)
        script.send(end(after, committed), version)


def show_settled(script: Script, producer: Producer) -> None:
    """Markers are written in the background."""
    script.settle(
        describe_transactions(producer.transactional_id),
        until=lambda answer: not answer.transaction_states[0].transaction_state.startswith("Prepare"),
    )


@exchanges.cases(WRONG_PRODUCERS)
def an_end_by(script: Script, changed: Changed) -> None:
    producer, topic = second_epoch(script), script.topic()
    script.ask(add_partitions(producer, {topic.name: [0]}))
    for version in (0, 1, 2, 4, 5):
        script.send(end(changed(producer)), version)
    show(script, producer)


@exchanges.cases(WRONG_PRODUCERS)
def an_abort_by(script: Script, changed: Changed) -> None:
    producer, topic = second_epoch(script), script.topic()
    script.ask(add_partitions(producer, {topic.name: [0]}))
    for version in (1, 4, 5):
        script.send(end(changed(producer), ABORT), version)


@exchanges.cases(WRONG_PRODUCERS)
def an_end_of_nothing_by(script: Script, changed: Changed) -> None:
    producer = second_epoch(script)
    for version in (1, 4, 5):
        script.send(end(changed(producer), COMMIT), version)


@exchanges.one
def three_transactions_of_the_new_protocol(script: Script) -> None:
    producer, topic = ready_producer(script), script.topic()
    for committed in (COMMIT, ABORT, COMMIT):
        script.send(write(producer, topic), 12)
        answer = script.send(end(producer, committed), 5)
        producer = producer._replace(id=answer.producer_id, epoch=answer.producer_epoch)
        show_settled(script, producer)


@exchanges.one
def three_transactions_of_the_old_protocol(script: Script) -> None:
    producer, topic = ready_producer(script), script.topic()
    for sequence, committed in enumerate((COMMIT, ABORT, COMMIT)):
        script.send(add_partitions(producer, {topic.name: [0]}, version=3), 3)
        script.send(write(producer, topic, sequence), 11)
        script.send(end(producer, committed), 4)
        show_settled(script, producer)


@exchanges.one
def from_the_old_protocol_to_the_new_and_back(script: Script) -> None:
    producer, topic = ready_producer(script), script.topic()
    script.send(add_partitions(producer, {topic.name: [0]}, version=3), 3)
    producer = ended(script, producer, COMMIT, 4)
    script.send(write(producer, topic), 12)
    producer = ended(script, producer, COMMIT, 5)
    script.send(add_partitions(producer, {topic.name: [0]}, version=3), 3)
    script.send(write(producer, topic), 11)
    script.send(end(producer), 4)
    show_settled(script, producer)


@exchanges.one
def a_late_end_of_the_transaction_before(script: Script) -> None:
    old, topic = ready_producer(script), script.topic()
    written(script, old, topic)
    new = ended(script, old)
    written(script, new, topic)
    script.send(end(old, COMMIT), 5)
    script.send(end(old, ABORT), 5)
    script.send(end(old, COMMIT), 4)
    show(script, new)


@exchanges.one
def a_producer_is_fenced_by_another(script: Script) -> None:
    old, topic, group = ready_producer(script), script.topic(), script.group()
    new = old._replace(epoch=script.ask(init(old.transactional_id)).producer_epoch)
    script.send(add_partitions(old, {topic.name: [0]}, version=3), 3)
    script.send(add_offsets(old, group))
    script.send(commit_offsets(old, group, topic), 5)
    script.send(write(old, topic), 12)
    script.send(write(old, topic), 11)
    script.send(end(old), 5)
    script.send(end(old, ABORT), 4)
    script.send(write(new, topic), 12)
    script.send(end(new), 5)
