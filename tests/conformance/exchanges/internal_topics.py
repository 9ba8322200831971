"""The topics of the coordinators: clients may read them, and nothing more."""

from __future__ import annotations

from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.batches import patched, plain, sequenced
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import delete_records, produce, produce_many
from tests.conformance.script import Script, Topic

exchanges = Exchanges("internal_topics")

GROUPS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
MAGIC_AT = 16


def internal(script: Script, name: str = GROUPS) -> Topic:
    """One of them, once its coordinator is ready."""
    if name == GROUPS:
        script.group()
    else:
        script.transactional_id()
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    [topic] = script.ask_until(request, until=lambda answer: answer.topics[0].error_code == 0).topics
    return Topic(name, topic.topic_id)


@exchanges.versions((3, 8, 12, 13))
def produce_is_refused(script: Script, version: int) -> None:
    script.send(produce(internal(script), plain()), version)


@exchanges.cases({"offsets": GROUPS, "transactions": TRANSACTIONS})
def produce_to(script: Script, name: str) -> None:
    script.send(produce(internal(script, name), plain(), acks=-1), 12)


@exchanges.one
def produce_of_an_idempotent_producer(script: Script) -> None:
    script.send(produce(internal(script), sequenced(77_100, 0)), 12)


@exchanges.one
def produce_of_bytes_that_are_no_batch(script: Script) -> None:
    topic = internal(script)
    script.send(produce(topic, b"xyz"), 12)
    script.send(produce(topic, patched(plain(), MAGIC_AT, ">b", 1)), 12)


@exchanges.cases({"offsets": GROUPS, "transactions": TRANSACTIONS})
def produce_to_a_partition_that_is_not_there(script: Script, name: str) -> None:
    script.send(produce(internal(script, name), plain(), partition=1000), 12)


@exchanges.one
def produce_with_another_topic(script: Script) -> None:
    topic = script.topic()
    script.send(produce_many([(internal(script), 0, plain()), (topic, 0, plain())]), 12)


@exchanges.one
def produce_without_an_answer(script: Script) -> None:
    script.send_silent(produce(internal(script), plain(), acks=0), 12)


@exchanges.cases({"offsets": GROUPS, "transactions": TRANSACTIONS})
def delete_records_of(script: Script, name: str) -> None:
    topic = internal(script, name)
    script.send(delete_records(topic, (0, 0)))
    script.send(delete_records(topic, (0, -1)))
    script.send(delete_records(topic, (0, -2)))
    script.send(delete_records(topic, (1000, 0)))
