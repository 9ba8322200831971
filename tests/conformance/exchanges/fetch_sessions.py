"""Fetch sessions: made, used, changed and closed, in every wrong order too."""

from __future__ import annotations

from typing import NamedTuple

from tests.conformance.batches import plain
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import (
    UNKNOWN,
    delete_records,
    delete_topics,
    fetch,
    fetch_from,
    fetch_partition,
    forgotten,
)
from tests.conformance.script import Script, Topic

exchanges = Exchanges("fetch_sessions")


def open_session(script: Script, topic: Topic, offset: int = 0, version: int = 17) -> int:
    session_id: int = script.send(fetch_from(topic, offset, session_id=0, session_epoch=0), version).session_id
    return session_id


def go_on(script: Script, session_id: int, epoch: int, version: int = 17) -> None:
    script.send(fetch({}, session_id=session_id, session_epoch=epoch), version)


@exchanges.versions((7, 10, 12, 13, 18))
def opened_and_used(script: Script, version: int) -> None:
    topic = script.topic(values=2)
    session_id = open_session(script, topic, version=version)
    go_on(script, session_id, 1, version)
    script.produce(topic, plain(1))
    go_on(script, session_id, 2, version)


@exchanges.one
def only_what_changed_is_answered(script: Script) -> None:
    topic = script.topic(partitions=3)
    partitions = [fetch_partition(partition=partition) for partition in range(3)]
    session_id = script.send(fetch({topic: partitions}, session_epoch=0)).session_id
    go_on(script, session_id, 1)
    script.produce(topic, plain(1), 1)
    go_on(script, session_id, 2)
    moved = fetch({topic: [fetch_partition(1, partition=1)]}, session_id=session_id, session_epoch=3)
    script.send(moved)
    go_on(script, session_id, 4)


@exchanges.one
def a_high_watermark_that_moved_is_a_change(script: Script) -> None:
    topic = script.topic(values=1)
    session_id = open_session(script, topic, 1)
    script.produce(topic, plain(1))
    partition = fetch_partition(2)
    script.send(fetch({topic: [partition]}, session_id=session_id, session_epoch=1))
    go_on(script, session_id, 2)


@exchanges.one
def a_log_start_that_moved_is_a_change(script: Script) -> None:
    topic = script.topic(values=3)
    session_id = open_session(script, topic, 3)
    script.ask(delete_records(topic, (0, 2)))
    go_on(script, session_id, 1)
    go_on(script, session_id, 2)


class Used(NamedTuple):
    epoch: int
    known: bool = True


WRONG_ORDERS = {
    "an epoch ahead": [Used(2), Used(1)],
    "an epoch behind": [Used(1), Used(1), Used(2)],
    "an epoch far ahead": [Used(2**31 - 1), Used(1)],
    "an unknown session": [Used(1, known=False), Used(1)],
    "an unknown session at its start": [Used(0, known=False)],
    "an unknown session at its end": [Used(-1, known=False)],
    "opened again": [Used(0), Used(1)],
    "closed": [Used(-1), Used(1)],
    "closed twice": [Used(-1), Used(-1)],
    "closed and opened": [Used(-1), Used(0)],
    "an epoch of -2": [Used(-2), Used(1)],
}


@exchanges.cases(WRONG_ORDERS)
def an_order(script: Script, uses: list[Used]) -> None:
    session_id = open_session(script, script.topic(values=1))
    unknown = session_id ^ 1
    for use in uses:
        go_on(script, session_id if use.known else unknown, use.epoch)


@exchanges.cases({"epoch 3": 3, "epoch 1": 1, "epoch -2": -2})
def no_session_with(script: Script, epoch: int) -> None:
    script.send(fetch_from(script.topic(values=1), session_id=0, session_epoch=epoch))


@exchanges.one
def a_session_without_partitions(script: Script) -> None:
    session_id = script.send(fetch({}, session_epoch=0)).session_id
    go_on(script, session_id, 1)


@exchanges.one
def a_partition_is_added(script: Script) -> None:
    topic = script.topic(partitions=2, values=1)
    session_id = open_session(script, topic)
    added = fetch({topic: [fetch_partition(partition=1)]}, session_id=session_id, session_epoch=1)
    script.send(added)
    go_on(script, session_id, 2)


@exchanges.versions((7, 12, 17))
def a_partition_is_forgotten(script: Script, version: int) -> None:
    topic = script.topic(partitions=2, values=1)
    script.produce(topic, plain(1), 1)
    partitions = [fetch_partition(partition=partition) for partition in range(2)]
    session_id = script.send(fetch({topic: partitions}, session_epoch=0), version).session_id
    forgetting = fetch({}, session_id=session_id, session_epoch=1, forgotten_topics_data=forgotten(topic, 0))
    script.send(forgetting, version)
    go_on(script, session_id, 2, version)


@exchanges.one
def the_last_partition_is_forgotten(script: Script) -> None:
    topic = script.topic(values=1)
    session_id = open_session(script, topic)
    forgetting = fetch({}, session_id=session_id, session_epoch=1, forgotten_topics_data=forgotten(topic, 0))
    script.send(forgetting)
    go_on(script, session_id, 2)


@exchanges.one
def what_was_never_asked_for_is_forgotten(script: Script) -> None:
    topic = script.topic(values=1)
    session_id = open_session(script, topic)
    forgetting = fetch({}, session_id=session_id, session_epoch=1, forgotten_topics_data=forgotten(UNKNOWN, 3))
    script.send(forgetting)
    go_on(script, session_id, 2)


@exchanges.cases({"a name after ids": (17, 12), "ids after a name": (12, 17)})
def names_and_ids_are_mixed(script: Script, versions: tuple[int, int]) -> None:
    first, second = versions
    session_id = open_session(script, script.topic(values=1), version=first)
    go_on(script, session_id, 1, second)
    go_on(script, session_id, 1, first)


@exchanges.versions((12, 17))
def an_error_is_told_each_time(script: Script, version: int) -> None:
    session_id = open_session(script, script.topic(values=1), 9, version)
    go_on(script, session_id, 1, version)
    go_on(script, session_id, 2, version)


@exchanges.versions((12, 17))
def an_unknown_topic_is_told_each_time(script: Script, version: int) -> None:
    session_id = open_session(script, UNKNOWN, version=version)
    go_on(script, session_id, 1, version)


@exchanges.one
def a_topic_is_deleted(script: Script) -> None:
    topic = script.topic(values=1)
    session_id = open_session(script, topic, 1)
    script.ask(delete_topics(topic.name))
    script.settle(fetch_from(topic), until=lambda answer: answer.responses[0].partitions[0].error_code not in (0, 3, 6))
    go_on(script, session_id, 1)


@exchanges.one
def waiting_in_a_session(script: Script) -> None:
    topic = script.topic(values=1)
    session_id = open_session(script, topic, 1)
    request = fetch({}, session_id=session_id, session_epoch=1, min_bytes=1, max_wait_ms=60_000)
    waiting = script.begin(request, on="waiting")
    script.still_waits(waiting)
    script.produce(topic, plain(1))
    script.finish(waiting)


@exchanges.one
def a_session_on_another_connection(script: Script) -> None:
    session_id = open_session(script, script.topic(values=1))
    script.send(fetch({}, session_id=session_id, session_epoch=1), on="another")
