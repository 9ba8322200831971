"""A mistake in a test is told, and nothing hangs."""

import threading
from pathlib import Path
from typing import Any

import pytest

import ottla.testing
from ottla.broker.broker import Broker
from ottla.broker.loop.slices import Future, Steps
from ottla.client import Admin, Producer, Resource, ResourceKind
from ottla.testing import LocalBroker

pytestmark = pytest.mark.ottla(topics={"of-the-file": 1}, settings={"num.partitions": 7})


@pytest.mark.ottla(topics={"of-the-test": 2}, settings={"auto.create.topics.enable": False})
def test_markers_add_up_and_numbers_are_settings(ottla: LocalBroker) -> None:
    assert ottla.values("of-the-file") == ottla.values("of-the-test") == []
    with Admin(ottla.bootstrap) as admin:
        assert {topic.name for topic in admin.list_topics()} >= {"of-the-file", "of-the-test"}


def test_looks_into_a_paused_broker_are_refused_at_once(ottla: LocalBroker) -> None:
    with ottla.paused():
        for look in (
            lambda: ottla.values("of-the-file"),
            lambda: ottla.topic("another"),
            lambda: ottla.assert_records("of-the-file", [b"x"], within=1),
        ):
            with pytest.raises(RuntimeError, match="paused"):
                look()
    assert ottla.values("of-the-file") == []


def test_looks_into_a_broker_that_is_down_are_refused(ottla: LocalBroker) -> None:
    with ottla.down(), pytest.raises(RuntimeError, match="down"):
        ottla.values("of-the-file")
    assert ottla.values("of-the-file") == []


@pytest.mark.parametrize("is_killed", [False, True])
def test_who_asks_for_something_while_another_thread_ends_the_broker_is_told(
    ottla: LocalBroker, is_killed: bool
) -> None:
    began = threading.Event()
    errors: list[BaseException] = []

    def never(_: Broker) -> Steps:
        began.set()
        yield from Future[None]().wait()

    def ask() -> None:
        try:
            ottla.run(never)
        except RuntimeError as error:
            errors.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert began.wait(10)
    ottla.restart(kill=is_killed)
    asking.join(10)
    assert [str(error) for error in errors] == ["the broker has ended meanwhile"]
    assert ottla.values("of-the-file") == []


def test_a_fault_for_a_topic_that_nobody_made_is_told() -> None:
    running = ottla.testing.broker()
    broker = running.__enter__()
    broker.topic("orders")
    broker.faults.cut("Produce", topic="ordres")
    with pytest.warns(UserWarning, match="'ordres', and there is none"):
        running.__exit__(None, None, None)


def test_one_that_is_told_as_an_error_leaves_no_broker_behind() -> None:
    before = set(threading.enumerate())
    with pytest.raises(UserWarning, match="'ordres'"), ottla.testing.broker() as broker:
        broker.faults.cut("Produce", topic="ordres")
    assert set(threading.enumerate()) == before


def test_a_broker_may_be_stopped_inside_its_block_and_again(tmp_path: Path) -> None:
    for folder in (None, str(tmp_path)):
        with ottla.testing.broker(folder) as broker:
            broker.topic("orders")
            broker.stop()
            broker.stop()
    with ottla.testing.broker(str(tmp_path)) as broker:
        assert broker.values("orders") == []


def test_the_lag_of_a_group_that_nobody_knows_is_no_number(ottla: LocalBroker) -> None:
    with pytest.raises(ValueError, match="no group 'typo'"):
        ottla.lag("typo")


def test_numbers_are_values_of_a_topic_too(ottla: LocalBroker) -> None:
    ottla.topic("short", config={"retention.ms": 1000, "unclean.leader.election.enable": True})
    with Admin(ottla.bootstrap) as admin:
        [found] = admin.describe_configs([Resource(ResourceKind.TOPIC, "short")], ["retention.ms"])
    assert found.entries[0].value == "1000"


@pytest.mark.parametrize("partition", [-1, 1])
def test_nothing_is_put_into_a_partition_that_is_not_there(ottla: LocalBroker, partition: int) -> None:
    with pytest.raises(ValueError, match=f"'of-the-file' has no partition {partition}: it has 1"):
        ottla.put("of-the-file", b"x", partition=partition)
    assert ottla.values("of-the-file") == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"times": "2"}, "times is a whole number, not '2'"),
        ({"times": -1}, "times is a whole number"),
        ({"after": 0.5}, "after is a whole number"),
        ({"topic": ["of-the-file"]}, "topic is a str"),
        ({"client_id": 7}, "client_id is a str"),
    ],
)
def test_crooked_faults_are_refused_where_they_are_made(
    ottla: LocalBroker, options: dict[str, Any], reason: str
) -> None:
    """In the thread of the broker it would be the broker's mistake."""
    with pytest.raises((ValueError, TypeError), match=reason):
        ottla.faults.cut("Produce", **options)
    with Producer(ottla.bootstrap) as producer:
        assert producer.send("of-the-file", b"x").result(10).offset == 0


@pytest.mark.parametrize("api", ["JoinGroup", "Heartbeat", "EndTxn", "InitProducerId", "FindCoordinator"])
def test_a_fault_for_a_topic_of_requests_that_name_none_is_refused(ottla: LocalBroker, api: str) -> None:
    with pytest.raises(ValueError, match=f"{api} requests name no topic"):
        ottla.faults.cut(api, topic="of-the-file")


@pytest.mark.parametrize("api", ["Produce", "Fetch", "Metadata", "OffsetFetch", "OffsetCommit", "AddPartitionsToTxn"])
def test_requests_that_name_topics_may_be_chosen_by_them(ottla: LocalBroker, api: str) -> None:
    assert not ottla.faults.cut(api, topic="of-the-file").count
    ottla.faults.clear()


def test_a_delay_that_is_no_number_is_told(ottla: LocalBroker) -> None:
    with pytest.raises(ValueError, match="a delay is a number of seconds, not '1'"):
        ottla.faults.delay("Produce", "1")  # type: ignore[arg-type]


@pytest.mark.parametrize("code", ["NONE", 0])
def test_a_fault_whose_error_is_none_is_refused(ottla: LocalBroker, code: str | int) -> None:
    with pytest.raises(ValueError, match="NONE is no error"):
        ottla.faults.error("Produce", code)


def test_a_time_before_1970_is_put_nowhere(ottla: LocalBroker) -> None:
    with pytest.raises(ValueError, match="a timestamp is not negative: -5"):
        ottla.put("of-the-file", b"x", timestamp=-5)
    assert ottla.values("of-the-file") == []


def test_a_durability_that_there_is_not_is_told() -> None:
    with pytest.raises(ValueError, match="durability is page-cache or fsync"), ottla.testing.broker(durability="disk"):
        pass
