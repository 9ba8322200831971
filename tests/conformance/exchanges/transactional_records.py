"""Records of transactions: who may write them, who sees them, and what a partition knows of their producers."""

from __future__ import annotations

from typing import Any

from ottla.wire.uuids import ZERO_UUID
from tests.conformance.batches import plain, sequenced
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import (
    delete_records,
    delete_topics,
    fetch,
    fetch_from,
    fetch_partition,
    list_offsets,
    produce,
    produce_many,
)
from tests.conformance.script import Script, Topic
from tests.conformance.transaction_requests import (
    ABORT,
    COMMIT,
    OTHERS,
    RESULTS,
    Changed,
    add_partitions,
    await_transaction,
    describe_producers,
    describe_transactions,
    end,
    ended,
    init,
    ready_producer,
    second_epoch,
    write,
    written,
)

exchanges = Exchanges("transactional_records")

READ_COMMITTED = 1
VERSIONS = (3, 8, 10, 11, 12, 13)


def one_segment(script: Script, *, label: str = "topic", **options: Any) -> Topic:
    """A topic whose records are old and whose markers are new, and which neither starts a segment nor loses one."""
    return script.topic(label, configs={"segment.ms": str(2**63 - 1), "retention.ms": "-1"}, **options)


def show(script: Script, topic: Topic, offset: int = 0, version: int = 12) -> None:
    script.send(fetch_from(topic, offset, isolation_level=READ_COMMITTED), version)


@exchanges.versions(VERSIONS)
def without_adding_the_partition(script: Script, version: int) -> None:
    producer, topic = ready_producer(script), script.topic()
    script.send(write(producer, topic), version)
    script.send(write(producer, topic, 1), version)
    script.send(describe_transactions(producer.transactional_id))


@exchanges.versions(VERSIONS)
def after_adding_the_partition(script: Script, version: int) -> None:
    producer, topic = ready_producer(script), script.topic()
    script.ask(add_partitions(producer, {topic.name: [0]}))
    script.send(write(producer, topic), version)
    script.send(write(producer, topic, 1, count=3), version)
    script.send(write(producer, topic, 1, count=3), version)
    script.send(write(producer, topic, 9), version)


@exchanges.cases({"none": 0, "of the leader": 1, "of all": -1})
def with_acks(script: Script, acks: int) -> None:
    producer, topic = ready_producer(script), one_segment(script)
    batch = sequenced(producer.id, 0, epoch=producer.epoch, is_transactional=True)
    request = produce(topic, batch, acks=acks, transactional_id=producer.transactional_id)
    if acks == 0:
        script.send_silent(request, 12)
    else:
        script.send(request, 12)
    show(script, topic)
    ended(script, producer)
    show(script, topic)


@exchanges.versions((10, 11, 12))
def to_another_partition_than_was_added(script: Script, version: int) -> None:
    producer, topic = ready_producer(script), script.topic(partitions=2)
    script.ask(add_partitions(producer, {topic.name: [0]}))
    script.send(write(producer, topic, partition=1), version)
    script.send(describe_transactions(producer.transactional_id))


@exchanges.cases(OTHERS)
def written_by(script: Script, changed: Changed) -> None:
    producer, topic = second_epoch(script), script.topic()
    for version in (3, 10, 11, 12, 13):
        script.send(write(changed(producer), topic), version)


@exchanges.cases(OTHERS)
def written_in_an_open_transaction_by(script: Script, changed: Changed) -> None:
    producer, topic = second_epoch(script), script.topic()
    written(script, producer, topic)
    for version in (10, 11, 12):
        script.send(write(changed(producer), topic, 1), version)


@exchanges.one
def a_plain_batch_of_a_producer_with_an_open_transaction(script: Script) -> None:
    producer, topic = ready_producer(script), script.topic()
    written(script, producer, topic)
    script.send(write(producer, topic, 1, is_transactional=False), 12)
    script.send(produce(topic, sequenced(producer.id, 1, epoch=producer.epoch)), 12)
    script.send(write(producer, topic, 1), 12)


@exchanges.one
def a_transactional_batch_without_a_transactional_id(script: Script) -> None:
    producer, topic = ready_producer(script), script.topic()
    batch = sequenced(producer.id, 0, epoch=producer.epoch, is_transactional=True)
    for version in (3, 11, 12):
        script.send(produce(topic, batch, acks=-1), version)


@exchanges.one
def a_plain_batch_beside_a_transactional_one(script: Script) -> None:
    producer, topic = ready_producer(script), script.topic(partitions=2)
    batch = sequenced(producer.id, 0, epoch=producer.epoch, is_transactional=True)
    request = produce_many(
        [(topic, 0, batch), (topic, 1, plain())], acks=-1, transactional_id=producer.transactional_id
    )
    script.send(request, 12)
    script.send(describe_transactions(producer.transactional_id))


@exchanges.one
def batches_of_two_producers_in_one_request(script: Script) -> None:
    one, two, topic = ready_producer(script, "one"), ready_producer(script, "two"), script.topic(partitions=2)
    batches = [sequenced(producer.id, 0, epoch=producer.epoch, is_transactional=True) for producer in (one, two)]
    request = produce_many(
        [(topic, 0, batches[0]), (topic, 1, batches[1])], acks=-1, transactional_id=one.transactional_id
    )
    script.send(request, 12)


@exchanges.cases({"an older one first": (0, 1), "a newer one first": (1, 0)})
def batches_of_two_epochs_in_one_request(script: Script, rises: tuple[int, int]) -> None:
    producer, topic = ready_producer(script), script.topic(partitions=2)
    rows = [
        (topic, index, sequenced(producer.id, 0, epoch=producer.epoch + rise, is_transactional=True))
        for index, rise in enumerate(rises)
    ]
    script.send(produce_many(rows, acks=-1, transactional_id=producer.transactional_id), 12)
    script.send(describe_transactions(producer.transactional_id))


@exchanges.one
def batches_of_two_producers_and_what_is_beside_them(script: Script) -> None:
    one, two, topic = ready_producer(script, "one"), ready_producer(script, "two"), script.topic(partitions=3)
    batches = [sequenced(producer.id, 0, epoch=producer.epoch, is_transactional=True) for producer in (one, two)]
    rows = [(topic, 0, batches[0]), (topic, 1, batches[1]), (topic, 2, plain())]
    script.send(produce_many(rows, acks=-1, transactional_id=one.transactional_id), 12)


@exchanges.one
def partitions_good_and_bad(script: Script) -> None:
    producer, topic = ready_producer(script), script.topic()
    batch = sequenced(producer.id, 0, epoch=producer.epoch, is_transactional=True)
    rows = [(topic, 0, batch), (topic, 5, batch), (Topic("nobody-made-this", ZERO_UUID), 0, batch)]
    script.send(produce_many(rows, acks=-1, transactional_id=producer.transactional_id), 12)
    script.send(describe_transactions(producer.transactional_id))


@exchanges.cases({"version 11": 11, "version 12": 12})
def a_first_sequence_of_5(script: Script, version: int) -> None:
    producer, topic = ready_producer(script), script.topic()
    script.ask(add_partitions(producer, {topic.name: [0]}))
    script.send(write(producer, topic, 5), version)


@exchanges.one
def sequences_start_again_with_every_transaction_of_the_new_protocol(script: Script) -> None:
    producer, topic = ready_producer(script), script.topic()
    written(script, producer, topic)
    producer = ended(script, producer)
    script.send(write(producer, topic, 1), 12)
    script.send(write(producer, topic, 0), 12)
    script.send(write(producer, topic, 1), 12)


@exchanges.one
def sequences_go_on_in_the_old_protocol(script: Script) -> None:
    producer, topic = ready_producer(script), script.topic()
    for sequence in (0, 1):
        script.ask(add_partitions(producer, {topic.name: [0]}))
        script.send(write(producer, topic, sequence), 11)
        ended(script, producer, version=4)
    script.ask(add_partitions(producer, {topic.name: [0]}))
    script.send(write(producer, topic, 0), 11)
    script.send(write(producer, topic, 5), 11)
    script.send(write(producer, topic, 2), 11)


@exchanges.one
def a_late_batch_of_the_transaction_before(script: Script) -> None:
    old, topic = ready_producer(script), script.topic(partitions=2)
    written(script, old, topic)
    new = ended(script, old)
    script.send(write(old, topic, 1), 12)
    script.send(write(old, topic, 0, partition=1), 12)
    script.send(write(old, topic, 1), 11)
    script.send(write(new, topic, 0), 12)
    script.send(write(old, topic, 0), 12)


@exchanges.one
def a_late_batch_of_the_transaction_before_in_the_old_protocol(script: Script) -> None:
    producer, topic = ready_producer(script), script.topic()
    script.ask(add_partitions(producer, {topic.name: [0]}))
    script.ask(write(producer, topic), 11)
    ended(script, producer, version=4)
    script.send(write(producer, topic, 1), 10)
    script.send(write(producer, topic, 1), 11)
    script.send(write(producer, topic, 0), 11)
    script.send(write(producer, topic, 1), 12)


@exchanges.versions((4, 11, 12, 16, 18))
def an_open_transaction_is_read(script: Script, version: int) -> None:
    producer, topic = ready_producer(script), one_segment(script, values=2)
    written(script, producer, topic, count=2)
    script.produce(topic, plain(1))
    for isolation in (0, READ_COMMITTED):
        script.send(fetch_from(topic, isolation_level=isolation), version)
    for offset in (1, 2, 4, 5, 6):
        show(script, topic, offset, version)


def transactions_of_two(script: Script, topic: Topic) -> None:
    """Committed and aborted ones, one within the other."""
    one, two = ready_producer(script, "one"), ready_producer(script, "two")
    written(script, one, topic)
    written(script, two, topic)
    one = ended(script, one, ABORT)
    written(script, one, topic)
    two = ended(script, two, COMMIT)
    written(script, two, topic)
    ended(script, one, COMMIT)
    ended(script, two, ABORT)


@exchanges.versions((4, 11, 12, 16, 18))
def ended_transactions_are_read(script: Script, version: int) -> None:
    topic = one_segment(script)
    transactions_of_two(script, topic)
    for isolation in (0, READ_COMMITTED):
        script.send(fetch_from(topic, isolation_level=isolation), version)


@exchanges.cases({str(offset): offset for offset in range(11)})
def aborted_transactions_from_offset(script: Script, offset: int) -> None:
    topic = one_segment(script)
    transactions_of_two(script, topic)
    show(script, topic, offset)


@exchanges.one
def aborted_transactions_within_few_bytes(script: Script) -> None:
    topic = one_segment(script)
    transactions_of_two(script, topic)
    for offset in range(9):
        request = fetch({topic: [fetch_partition(offset, max_bytes=1)]}, isolation_level=READ_COMMITTED)
        script.send(request, 12)


@exchanges.one
def a_transaction_in_two_partitions(script: Script) -> None:
    producer, topic = ready_producer(script), one_segment(script, partitions=2)
    written(script, producer, topic)
    written(script, producer, topic, partition=1)
    both = fetch({topic: [fetch_partition(), fetch_partition(partition=1)]}, isolation_level=READ_COMMITTED)
    script.send(both, 12)
    ended(script, producer, ABORT)
    script.send(both, 12)


@exchanges.one
def a_transaction_without_records(script: Script) -> None:
    producer, topic = ready_producer(script), one_segment(script)
    script.ask(add_partitions(producer, {topic.name: [0]}))
    ended(script, producer, ABORT)
    show(script, topic)
    script.send(fetch_from(topic), 12)


TIMESTAMPS = {"latest": -1, "earliest": -2, "of the highest time": -3, "a time": 1_700_000_000_000, "0": 0}


@exchanges.cases(TIMESTAMPS)
def list_offsets_beside_an_open_transaction(script: Script, timestamp: int) -> None:
    producer, topic = ready_producer(script), one_segment(script, values=1)
    written(script, producer, topic, timestamp=1_700_000_000_500)
    for isolation in (0, READ_COMMITTED):
        script.send(list_offsets(topic, timestamp, isolation=isolation))
    script.send(list_offsets(topic, timestamp, isolation=READ_COMMITTED), 7)
    ended(script, producer, ABORT)
    for isolation in (0, READ_COMMITTED):
        script.send(list_offsets(topic, timestamp, isolation=isolation))


@exchanges.one
def the_last_stable_offset_moves_with_the_oldest_transaction(script: Script) -> None:
    one, two, topic = ready_producer(script, "one"), ready_producer(script, "two"), one_segment(script)
    latest = list_offsets(topic, -1, isolation=READ_COMMITTED)
    written(script, one, topic)
    written(script, two, topic)
    script.send(latest)
    ended(script, two)
    script.send(latest)
    ended(script, one)
    script.send(latest)


@exchanges.cases(RESULTS)
def a_reader_that_waits_gets_records_when_the_transaction_ends(script: Script, committed: bool) -> None:
    producer, topic = ready_producer(script), one_segment(script)
    written(script, producer, topic)
    waiting = script.begin(
        fetch_from(topic, isolation_level=READ_COMMITTED, max_wait_ms=9_000, min_bytes=1), 12, on="reader"
    )
    script.still_waits(waiting)
    ended(script, producer, committed)
    script.finish(waiting)


@exchanges.one
def a_reader_that_waits_for_any_record_gets_an_open_one(script: Script) -> None:
    producer, topic = ready_producer(script), one_segment(script)
    waiting = script.begin(fetch_from(topic, max_wait_ms=9_000, min_bytes=1), 12, on="reader")
    script.still_waits(waiting)
    written(script, producer, topic)
    script.finish(waiting)


@exchanges.cases(RESULTS)
def a_session_sees_a_transaction_end(script: Script, committed: bool) -> None:
    producer, topic = ready_producer(script), one_segment(script)
    written(script, producer, topic)
    session = script.send(
        fetch({topic: [fetch_partition()]}, isolation_level=READ_COMMITTED, session_epoch=0), 12
    ).session_id
    following = {"isolation_level": READ_COMMITTED, "session_id": session}
    script.send(fetch({}, session_epoch=1, **following), 12)
    ended(script, producer, committed)
    script.send(fetch({}, session_epoch=2, **following), 12)
    script.send(fetch({topic: [fetch_partition(2)]}, session_epoch=3, **following), 12)
    script.send(fetch({}, session_epoch=4, **following), 12)


@exchanges.one
def records_of_an_open_transaction_are_deleted(script: Script) -> None:
    producer, topic = ready_producer(script), one_segment(script, values=1)
    written(script, producer, topic, count=2)
    script.send(delete_records(topic, (0, 2)))
    script.send(list_offsets(topic, -1, isolation=READ_COMMITTED))
    script.send(list_offsets(topic, -2, isolation=READ_COMMITTED))
    script.send(delete_records(topic, (0, -1)))
    script.send(list_offsets(topic, -1, isolation=READ_COMMITTED))
    show(script, topic, 3)
    ended(script, producer, ABORT)
    show(script, topic, 3)


@exchanges.cases(RESULTS)
def a_topic_is_deleted_in_an_open_transaction(script: Script, committed: bool) -> None:
    producer, topic, other = ready_producer(script), script.topic(), one_segment(script, label="other")
    written(script, producer, topic)
    written(script, producer, other)
    script.ask(delete_topics(topic.name))
    script.ask_until(
        describe_producers({topic.name: [0]}),
        until=lambda answer: answer.topics[0].partitions[0].error_code != 0,
    )
    script.send(end(producer, committed), 5)
    await_transaction(script, producer, "CompleteCommit" if committed else "CompleteAbort")
    script.send(describe_transactions(producer.transactional_id))
    show(script, other)


@exchanges.one
def a_transaction_times_out(script: Script) -> None:
    producer, topic = ready_producer(script, timeout_ms=50), one_segment(script)
    written(script, producer, topic)
    script.patience_s = 30
    await_transaction(script, producer, "CompleteAbort")
    script.send(describe_transactions(producer.transactional_id))
    script.send(write(producer, topic, 1), 12)
    script.send(write(producer, topic, 1), 11)
    script.send(add_partitions(producer, {topic.name: [0]}, version=1), 1)
    script.send(add_partitions(producer, {topic.name: [0]}, version=3), 3)
    for committed in (COMMIT, ABORT):
        for version in (1, 4, 5):
            script.send(end(producer, committed), version)
    script.send(init(producer.transactional_id, producer_id=producer.id, epoch=producer.epoch))
    show(script, topic)


@exchanges.one
def producers_of_a_partition(script: Script) -> None:
    producer, topic = ready_producer(script), script.topic(partitions=2)
    shown = describe_producers({topic.name: [0, 1]})
    script.send(shown)
    written(script, producer, topic)
    script.send(shown)
    written(script, producer, topic, 1, count=2)
    script.send(shown)
    producer = ended(script, producer, ABORT)
    script.send(shown)
    written(script, producer, topic)
    ended(script, producer)
    script.send(shown)


@exchanges.one
def producers_without_transactions(script: Script) -> None:
    topic = script.topic()
    for producer_id, sequence in ((501, 0), (502, 7), (501, 1)):
        script.ask(produce(topic, sequenced(producer_id, sequence, epoch=2)), 12)
    script.send(describe_producers({topic.name: [0]}))


BAD_PARTITIONS: dict[str, dict[str, Any]] = {
    "an unknown topic": {"nobody-made-this": [0, 1]},
    "an empty topic": {"": [0]},
    "no partitions": {"nobody-made-this": []},
    "a bad name": {"a/b": [0]},
}


@exchanges.cases(BAD_PARTITIONS)
def producers_of(script: Script, topics: dict[str, Any]) -> None:
    script.send(describe_producers(topics))


@exchanges.one
def producers_of_partitions_that_are_not_there(script: Script) -> None:
    topic = script.topic()
    script.send(describe_producers({topic.name: [0, 1, -1]}))
    script.send(describe_producers({}))


@exchanges.one
def aborted_transactions_in_several_segments(script: Script) -> None:
    """Markers are much younger than the records before them, so that each begins a segment."""
    producer, topic = ready_producer(script), script.topic(configs={"retention.ms": "-1"})
    for _ in range(2):
        written(script, producer, topic)
        producer = ended(script, producer, ABORT)
    for offset in range(4):
        show(script, topic, offset)
