"""A mistake in a test is told, and nothing hangs."""

import threading
from pathlib import Path

import pytest

import ottla.testing
from ottla.client import Admin
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
