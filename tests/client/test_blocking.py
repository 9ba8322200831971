"""The blocking face has what the asyncio one has, and ends when it is told to."""

import inspect
import threading

import pytest

import ottla.client
from ottla.client import BrokerUnreachable, aio, blocking
from ottla.client.consumer.options import ConsumerOptions
from ottla.client.consumer.reader import ReaderOptions
from ottla.client.producer.producer import ProducerOptions
from tests.apache_kafka.harness import free_ports
from tests.client.scripted_broker import TOPIC, ScriptedBroker, ScriptedBrokerThread

INSIDE = {"end", "recovery"}  # of the core, for its faces


@pytest.mark.parametrize("name", ["Admin", "Producer", "Consumer", "Reader"])
def test_both_faces_have_the_same_methods(name: str) -> None:
    core = getattr(aio, name)
    methods = {method for method in vars(core) if not method.startswith("_")}
    assert methods - INSIDE <= set(dir(getattr(ottla.client, name)))


def test_the_constructors_of_both_faces_take_the_same_options() -> None:
    for core, options in (
        (aio.Producer, ProducerOptions),
        (aio.Consumer, ConsumerOptions),
        (aio.Reader, ReaderOptions),
    ):
        parameters = inspect.signature(core).parameters.values()
        named = {one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
        assert set(options.__annotations__) == named


def test_it_works_and_leaves_no_thread() -> None:
    before = threading.active_count()
    with ScriptedBrokerThread(ScriptedBroker()) as broker, blocking.Admin(broker.bootstrap) as admin:
        assert [topic.name for topic in admin.list_topics()] == [TOPIC]
    assert threading.active_count() == before


def test_closed_is_closed_and_may_be_said_twice() -> None:
    admin = blocking.Admin("localhost:9092")
    admin.close()
    admin.close()
    with pytest.raises(RuntimeError, match="this client is closed"):
        admin.list_topics()


def test_nobody_listens() -> None:
    before = threading.active_count()
    ports = free_ports(2)
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
    with pytest.raises(BrokerUnreachable) as raised, blocking.Admin(bootstrap):
        pass
    assert all(f"127.0.0.1:{port}: connection refused" in str(raised.value) for port in ports)
    assert threading.active_count() == before
