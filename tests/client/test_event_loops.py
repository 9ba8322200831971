"""Clients of the asyncio face, and the event loop that they were opened on: another one, or one that has ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import ottla.testing
from ottla.client import ProducerClosed, Sent, aio
from ottla.testing import LocalBroker

LONG_SECONDS = 30


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as running:
        running.topic("t")
        running.put("t", b"0", b"1")
        yield running


class OtherLoop:
    """Runs in a thread of its own, as long as the block does."""

    def __enter__(self) -> OtherLoop:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        return self

    def run(self, work: Any) -> Any:
        done: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(LONG_SECONDS)

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def within_time(work: Callable[[], Awaitable[Any]]) -> Any:
    """On a loop of its own, on which nothing else happens that would wake who was forgotten."""

    async def run() -> Any:
        return await work()

    found: list[Any] = []

    def call() -> None:
        try:
            found.append(asyncio.run(run()))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LONG_SECONDS)
    assert not thread.is_alive()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


async def end_the_loop(client: Any) -> None:
    """As `asyncio.run` does when its coroutine is over; but no connection is left open."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client._cluster.close()


def test_records_can_be_waited_for_on_another_loop_and_the_producer_cannot(broker: LocalBroker) -> None:
    producer = aio.Producer(broker.bootstrap, linger_ms=50)
    with OtherLoop() as home:
        home.run(producer.open())

        async def wait(sent: Sent) -> int:
            return (await sent).offset

        assert within_time(lambda: wait(producer.send("t", b"2"))) == 2
        for work in (producer.flush, producer.close, lambda: producer.send_many("t", [b"3"])):
            with pytest.raises(RuntimeError, match="opened on another event loop"):
                within_time(work)
        assert home.run(producer.send_many("t", [b"3"]))[0].offset == 3
        home.run(producer.close())


def test_a_loop_that_ends_leaves_no_record_undecided(broker: LocalBroker) -> None:
    async def send() -> tuple[aio.Producer, Sent]:
        producer = await aio.Producer(broker.bootstrap, linger_ms=60_000).open()
        sent = producer.send("t", b"x")
        await end_the_loop(producer)
        return producer, sent

    producer, sent = asyncio.run(send())
    with pytest.raises(ProducerClosed):
        sent.result(LONG_SECONDS)
    with pytest.raises(RuntimeError, match="this producer is closed"):
        producer.send("t", b"y")
    with pytest.raises(RuntimeError, match="opened on another event loop"):
        within_time(producer.close)


def test_a_consumer_whose_loop_has_ended_says_so(broker: LocalBroker) -> None:
    async def read() -> aio.Consumer:
        consumer = await aio.Consumer(broker.bootstrap, "t", group="g").open()
        async for _ in consumer:
            break
        await end_the_loop(consumer.core)
        return consumer

    consumer = asyncio.run(read())
    with pytest.raises(RuntimeError, match="has ended"):
        within_time(consumer.poll)
