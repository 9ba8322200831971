"""Clients and what is around them: threads, forks, the end of the program, and `help`."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
import threading
from functools import partial
from typing import Any

import pytest

import ottla.client
import ottla.testing
from ottla.client import Admin, BatchReader, Consumer, DeliveryFailed, Producer, Reader, TopicPartition, aio
from ottla.testing import LocalBroker

Reads = partial(Reader, topic="t")
Subscribes = partial(Consumer, topics="t", group="g")


def test_calls_of_several_threads_land_in_their_order() -> None:
    with ottla.testing.broker() as broker, Producer(broker.bootstrap, linger_ms=20) as producer:
        broker.topic("t")
        for number in range(60):
            thread = threading.Thread(target=producer.send, args=("t", b"%d" % number))
            thread.start()
            thread.join()
            producer.send("t", b"%d+" % number)
        producer.flush()
        wanted = [text for number in range(60) for text in (b"%d" % number, b"%d+" % number)]
        assert broker.values("t") == wanted


def test_open_and_close_stand_beside_with() -> None:
    with ottla.testing.broker() as broker:
        broker.topic("t")
        producer = Producer([broker.bootstrap], acks=1).open(10)
        producer.send("t", b"x")
        producer.close(10)
        producer.close()
        admin = Admin([broker.bootstrap]).open()
        assert [topic.name for topic in admin.list_topics()] == ["t"]
        admin.close()


def client_threads() -> set[threading.Thread]:
    """Those of clients: a broker in this process starts some of its own when it needs them."""
    return {thread for thread in threading.enumerate() if thread.name == "ottla-client"}


@pytest.mark.parametrize("made", [Producer, Reads, Subscribes], ids=["producer", "reader", "consumer"])
def test_a_client_that_is_dropped_leaves_no_thread(made: Any) -> None:
    with ottla.testing.broker() as broker:
        broker.topic("t")
        before = client_threads()
        client = made(broker.bootstrap).open()
        [thread] = client_threads() - before
        if not isinstance(client, Producer):
            client.poll(100)
        del client
        gc.collect()
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize("kind", ["transactional", "reader", "batch reader", "consumer"])
def test_nothing_complains_of_a_client_that_was_dropped(
    kind: str, ottla: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """No task is collected while it waits, and none ends with an error that nobody looks at."""
    ottla.topic("t")
    ottla.put("t", b"x")
    before = client_threads()
    for _ in range(5):
        if kind == "transactional":
            Producer(ottla.bootstrap, transactional_id="x").open()
        elif kind == "reader":
            Reads(ottla.bootstrap).open().poll(100)
        elif kind == "consumer":
            Subscribes(ottla.bootstrap).open()
        else:
            reader = BatchReader(ottla.bootstrap).open()
            reader.assign({TopicPartition("t", 0): 0})
            reader.poll(100)
            del reader
        while left := client_threads() - before:
            gc.collect()
            for thread in left:
                thread.join(0.001)
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_one_that_was_never_opened_has_no_thread() -> None:
    before = threading.active_count()
    producer = Producer("localhost:1")
    assert threading.active_count() == before
    producer.close()


def test_in_a_child_of_the_process_it_is_an_error_and_no_hang() -> None:
    script = """
import os, sys, warnings
warnings.simplefilter("ignore")
import ottla.testing
from ottla.client import Producer
with ottla.testing.broker() as broker:
    broker.topic("t")
    producer = Producer(broker.bootstrap, linger_ms=1000).open()
    sent = producer.send("t", b"the parent's")
    child = os.fork()
    if child == 0:
        told = 0
        for call in (lambda: producer.send("t", b"x"), producer.flush, sent.result):
            try:
                call()
            except Exception as error:
                told += "forked" in str(error)
        producer.close()
        os._exit(told)
    _, status = os.waitpid(child, 0)
    producer.close()
    print(os.waitstatus_to_exitcode(status), broker.values("t"))
    sys.stdout.flush()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split("\n")[0] == '3 [b"the parent\'s"]'


def test_a_fork_while_other_threads_are_in_the_middle_of_something() -> None:
    """Of them only their locks are in the child."""
    script = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
import ottla.testing
from ottla.client import Consumer, Producer
with ottla.testing.broker() as broker:
    broker.topic("t")
    producer = Producer(broker.bootstrap, linger_ms=60_000).open()
    consumer = Consumer(broker.bootstrap, "t", group="g").open()
    written = producer.send("t", b"x")
    producer.flush()
    waiting = producer.send("t", b"y")
    locks = (producer._buffer.lock, producer._thread._lock, consumer._thread._lock)
    for lock in locks:
        lock.acquire()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        told = 0
        for call in (lambda: producer.send("t", b"z"), producer.flush, waiting.result, consumer.poll):
            try:
                call()
            except Exception as error:
                told += "forked" in str(error)
        told += written.is_done and written.result().offset == 0
        producer.close()
        consumer.close()
        os._exit(told)
    for lock in locks:
        lock.release()
    _, status = os.waitpid(child, 0)
    producer.close()
    consumer.close()
    print(os.waitstatus_to_exitcode(status), broker.values("t"))
    sys.stdout.flush()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split("\n")[0] == "5 [b'x', b'y']"


def test_a_consumer_in_a_child_of_the_process_is_an_error_and_no_hang() -> None:
    script = """
import os, sys, warnings
warnings.simplefilter("ignore")
import ottla.testing
from ottla.client import Consumer, TopicPartition
with ottla.testing.broker() as broker:
    broker.topic("t")
    broker.put("t", b"one", b"two")
    consumer = Consumer(broker.bootstrap, "t", group="g").open()
    messages = iter(consumer)
    assert next(messages).value == b"one"
    child = os.fork()
    if child == 0:
        told = 0
        for call in (consumer.poll, consumer.commit, lambda: next(iter(consumer))):
            try:
                call()
            except Exception as error:
                told += "forked" in str(error)
        consumer.close()
        os._exit(told)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), next(messages).value)
    sys.stdout.flush()
    consumer.close()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split("\n")[0] == "3 b'two'"


def test_a_program_that_ends_with_records_unsent_says_so() -> None:
    script = """
from ottla.client import Producer
import ottla.testing
with ottla.testing.broker() as broker:
    broker.topic("t")
    producer = Producer(broker.bootstrap, linger_ms=60_000).open()
    for _ in range(3):
        producer.send("t", b"x")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "the program ends, and 3 records were not sent: close the producer, or flush it" in done.stderr


@pytest.mark.parametrize("name", ["Producer", "Admin", "Consumer", "Reader"])
def test_help_shows_options_signatures_and_words(name: str) -> None:
    face, core = getattr(ottla.client, name), getattr(aio, name)
    assert face.__doc__ == core.__doc__
    assert list(inspect.signature(face).parameters) == list(inspect.signature(core).parameters)
    for method, function in vars(core).items():
        if inspect.iscoroutinefunction(function) and method[0] != "_" and method not in ("open", "close", "end"):
            shown = getattr(face, method)
            if method != "run":  # whose handler is awaited by one, and called by the other
                assert inspect.signature(shown) == inspect.signature(function)
            assert shown.__doc__ == function.__doc__


def test_what_was_not_written_is_said_at_the_end_of_with() -> None:
    with ottla.testing.broker() as broker:
        broker.topic("t")
        broker.faults.error("Produce", "INVALID_RECORD")
        producer = Producer(broker.bootstrap).open()
        producer.send("t", b"x")
        with pytest.raises(DeliveryFailed):
            producer.close(10)


@pytest.mark.parametrize("name", ["Producer", "Consumer"])
@pytest.mark.ottla(topics={"t": 1})
def test_the_first_record_waits_for_nothing_to_be_imported(ottla: LocalBroker, name: str) -> None:
    program = f"""
import sys
from ottla.client import {name}
assert "crc32c" not in sys.modules
with {name}({ottla.bootstrap!r}):
    assert "crc32c" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.ottla(topics={"t": 1})
def test_arrow_does_not_import_pandas(ottla: LocalBroker) -> None:
    ottla.put("t", b"x")
    program = f"""
import sys
from ottla.client import Consumer, TopicPartition
with Consumer({ottla.bootstrap!r}) as consumer:
    consumer.assign([TopicPartition("t", 0)])
    batch = next(consumer.arrow_batches())
assert "pandas" not in sys.modules
assert batch.column("topic").to_pylist() == ["t"]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("core", [aio.Admin, aio.Producer, aio.Consumer])
def test_help_says_what_each_method_does(core: type) -> None:
    methods = {name: method for name, method in inspect.getmembers(core, callable) if not name.startswith("_")}
    assert methods
    assert not [name for name, method in methods.items() if not method.__doc__ and name != "recovery"]
