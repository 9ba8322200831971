"""Calls of one client that meet: opened twice, closed while it opens, cancelled at any moment, used as it closes."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client import ClientOptions, Consumer, DeliveryFailed, Producer, TopicPartition, aio
from ottla.client.errors import TransactionAborted
from ottla.testing import LocalBroker
from ottla.testing.world import World, every_cancellation

IMPATIENT = ClientOptions(request_timeout_ms=1_000, retry_timeout_ms=3_000)
MADE: dict[str, Callable[[str], Any]] = {
    "admin": aio.Admin,
    "reader": lambda address: aio.Reader(address, "t"),
    "producer": aio.Producer,
    "transactional producer": lambda address: aio.Producer(address, transactional_id="x"),
    "classic consumer": lambda address: aio.Consumer(address, "t", group="g"),
    "consumer": lambda address: aio.Consumer(address, "t", group="g", group_protocol="consumer"),
}
clients = pytest.mark.parametrize("made", MADE.values(), ids=MADE.keys())


@clients
def test_open_that_is_cancelled_at_any_moment_leaves_nothing_and_may_be_called_again(
    made: Callable[[str], Any],
) -> None:
    def scenario(k: int) -> bool:
        with World(3) as world:
            world.create_topic("t")
            client = made(world.bootstrap)
            is_over = world.run_cancelled(client.open(), k)
            if not is_over:
                world.advance(60)
                assert world.leftovers() == []
                world.run(client.open())
            world.run(client.close())
            world.advance(60)
            assert world.leftovers() == []
            return is_over

    assert every_cancellation(scenario) >= 5


@clients
def test_who_closes_while_it_opens_is_obeyed(made: Callable[[str], Any]) -> None:
    """At any moment of its opening. `open` says that it is closed, and nothing is left."""

    def scenario(k: int) -> bool:
        with World(3) as world:
            world.create_topic("t")
            client = made(world.bootstrap)

            async def main() -> bool:
                opening: asyncio.Task[Any] = asyncio.ensure_future(client.open())
                await asyncio.sleep(k * 0.0005)
                is_over = opening.done()
                await client.close()
                if not is_over:
                    with pytest.raises(RuntimeError, match="closed"):
                        await opening
                return is_over

            is_over = world.run(main())
            world.advance(60)
            assert world.leftovers() == []
            return is_over

    assert every_cancellation(scenario) > 5


@clients
def test_two_who_open_it_share_it(made: Callable[[str], Any]) -> None:
    with World(3) as world:
        world.create_topic("t")
        client = made(world.bootstrap)

        async def main() -> None:
            await asyncio.gather(client.open(), client.open())
            await asyncio.gather(client.close(), client.close())

        world.run(main())
        world.advance(60)
        assert world.leftovers() == []


def test_nobody_gets_a_connection_of_a_client_that_is_closed() -> None:
    with World(3) as world:
        world.create_topic("t")

        async def main() -> None:
            admin = await aio.Admin(world.bootstrap).open()
            assert await admin.list_topics()
            await admin.close()
            with pytest.raises(RuntimeError, match="closed"):
                await admin.list_topics()
            async with admin:  # may be opened again
                assert await admin.list_topics()

        world.run(main())
        assert world.leftovers() == []


def test_a_call_that_meets_the_end_of_its_consumer_leaves_nothing() -> None:
    def scenario(k: int) -> bool:
        with World(3) as world:
            world.create_topic("t")

            async def main() -> bool:
                consumer = await aio.Consumer(world.bootstrap, "t", group="g").open()
                await consumer.poll(100)
                closing = asyncio.ensure_future(consumer.close())
                await asyncio.sleep(k * 0.0005)
                is_over = closing.done()
                told = await asyncio.gather(consumer.committed([TopicPartition("t", 0)]), return_exceptions=True)
                assert told[0] == {} or "closed" in str(told[0])
                await closing
                return is_over

            is_over = world.run(main())
            world.advance(60)
            assert world.leftovers() == []
            return is_over

    every_cancellation(scenario)


# Transactions.


async def second(producer: aio.Producer) -> None:
    async with producer.transaction():
        producer.send("t", b"second")


def test_the_next_transaction_may_be_asked_for_while_one_ends() -> None:
    def scenario(k: int) -> bool:
        with World(3) as world:
            world.create_topic("t")

            async def main() -> bool:
                async with aio.Producer(world.bootstrap, transactional_id="x", linger_ms=0) as producer:
                    transaction = producer.transaction()
                    await transaction.__aenter__()
                    producer.send("t", b"first")
                    ending = asyncio.ensure_future(transaction.__aexit__(None, None, None))
                    await asyncio.sleep(k * 0.0005)
                    is_over = ending.done()
                    told = await asyncio.gather(second(producer), return_exceptions=True)
                    assert told[0] is None or "one at a time" in str(told[0])
                    await ending
                    return is_over

            is_over = world.run(main())
            assert world.committed("t")[0].value == b"first"
            return is_over

    assert every_cancellation(scenario) > 5


def test_a_producer_that_is_closed_in_the_middle_of_a_transaction_tells_its_user() -> None:
    def scenario(k: int) -> bool:
        with World(3) as world:
            world.create_topic("t")

            async def work(producer: aio.Producer) -> str:
                try:
                    async with producer.transaction():
                        for number in range(3):
                            producer.send("t", b"%d" % number)
                            await asyncio.sleep(0.001)
                except (TransactionAborted, RuntimeError, DeliveryFailed):
                    return "aborted"
                return "committed"

            async def main() -> tuple[bool, str]:
                producer = await aio.Producer(world.bootstrap, transactional_id="x", linger_ms=1).open()
                working = asyncio.ensure_future(work(producer))
                await asyncio.sleep(k * 0.0005)
                is_over = working.done()
                await producer.close()
                return is_over, await working

            is_over, told = world.run(main())
            world.advance(60)
            assert world.leftovers() == []
            assert len(world.committed("t")) == (3 if told == "committed" else 0)
            return is_over

    assert every_cancellation(scenario) > 5


def test_close_that_is_cancelled_leaves_no_transaction_at_work() -> None:
    """The coordinator does not answer, and would be asked for ever."""

    def scenario(k: int) -> bool:
        with World(3) as world:
            world.create_topic("t")

            async def begin() -> aio.Producer:
                producer = await aio.Producer(world.bootstrap, transactional_id="x", options=IMPATIENT).open()
                await producer.transaction().__aenter__()
                await producer.send("t", b"1")
                return producer

            producer = world.run(begin())
            world.faults.silence("EndTxn", times=1_000)
            is_over = world.run_cancelled(producer.close(), k + 1)  # before the first it has not begun
            world.advance(60)
            assert world.leftovers() == []
            return is_over

    assert every_cancellation(scenario) > 5


# Threads.


@pytest.mark.ottla(topics={"t": 1})
def test_threads_that_close_at_once_wait_for_each_other(ottla: LocalBroker) -> None:
    """Whoever comes second neither hangs nor cuts the first off: all is written, and the group is left."""
    for _ in range(10):
        producer, consumer = Producer(ottla.bootstrap).open(), Consumer(ottla.bootstrap, "t", group="g").open()
        consumer.poll(0)
        producer.send("t", b"1")
        errors: list[BaseException] = []

        def close(client: Any, errors: list[BaseException] = errors) -> None:
            try:
                client.close()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=close, args=(client,)) for client in [producer, consumer] * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        assert errors == []
    assert len(ottla.values("t")) == 10


@pytest.mark.ottla(topics={"t": 1})
def test_calls_that_meet_the_end_of_the_thread_do_not_hang(ottla: LocalBroker) -> None:
    for _ in range(20):
        producer = Producer(ottla.bootstrap, linger_ms=0).open()
        is_begun = threading.Event()
        told: list[str] = []

        def send(producer: Producer = producer, is_begun: threading.Event = is_begun, told: list[str] = told) -> None:
            try:
                while True:
                    producer.send_many("t", [b"1"])
                    is_begun.set()
            except BaseException as error:
                told.append(type(error).__name__)

        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        is_begun.wait(60)
        producer.close()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        assert len(told) == 3


class Interrupted(Exception):
    """As KeyboardInterrupt comes: at any moment."""


def poll_for_a_moment(consumer: Consumer) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    consumer.poll(60_000)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals need the main thread")
@pytest.mark.ottla(topics={"t": 1})
def test_who_is_interrupted_may_call_again_at_once(ottla: LocalBroker) -> None:
    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with Consumer(ottla.bootstrap, "t", group="g") as consumer:
            for _ in range(20):
                with pytest.raises(Interrupted):
                    poll_for_a_moment(consumer)
                consumer.poll(0)  # nobody else reads it any more
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.ottla(topics={"t": 1})
def test_a_callback_that_would_wait_for_itself_is_told(ottla: LocalBroker) -> None:
    told: list[str] = []
    with Producer(ottla.bootstrap, buffer_bytes=1) as producer:

        def again(_: object) -> None:
            for call in (producer.flush, producer.close, lambda: producer.send_many("t", [b"2"])):
                with pytest.raises(RuntimeError, match="own thread"):
                    call()
            told.append("told")

        producer.send("t", b"1", on_delivery=again)
        producer.flush()
    assert told == ["told"]


@pytest.mark.ottla(topics={"t": 1})
def test_nor_does_it_wait_for_a_record_that_only_its_thread_could_bring(ottla: LocalBroker) -> None:
    told: list[str] = []
    with Producer(ottla.bootstrap) as producer:

        def wait(_: object) -> None:
            sent = producer.send("t", b"2")
            with pytest.raises(RuntimeError, match="own thread"):
                sent.result()
            told.append("told")

        producer.send("t", b"1", on_delivery=wait).result(20)
        producer.flush(20)
    assert told == ["told"]


@pytest.mark.ottla(topics={"t": 4})
def test_a_callback_that_exits_takes_nobody_along(ottla: LocalBroker, caplog: pytest.LogCaptureFixture) -> None:
    with Producer(ottla.bootstrap, linger_ms=50) as producer:
        sent = [producer.send("t", b"%d" % number, on_delivery=lambda _: sys.exit(3)) for number in range(8)]
        assert len({one.result(20).partition for one in sent}) == 4
        producer.send("t", b"8")
        producer.flush(20)
    assert len(ottla.values("t")) == 9
    assert "wanted to end the client's thread" in caplog.text


@pytest.mark.ottla(topics={"t": 4})
def test_on_an_event_loop_it_ends_that_when_all_are_told(ottla: LocalBroker) -> None:
    sent = []

    async def run() -> None:
        async with aio.Producer(ottla.bootstrap, linger_ms=50) as producer:
            sent.append(producer.send("t", b"0", on_delivery=lambda _: sys.exit(3)))
            sent.extend(producer.send("t", b"%d" % number) for number in range(1, 8))
            await asyncio.sleep(60)

    with pytest.raises(SystemExit):
        asyncio.run(run())
    assert all(one.is_done for one in sent)


@pytest.mark.ottla(topics={"t": 1})
def test_a_consumer_may_be_closed_by_its_own_callback(ottla: LocalBroker) -> None:
    told: list[str] = []

    def revoked(_: object) -> None:
        told.append("revoked")
        consumer.close()

    consumer = Consumer(ottla.bootstrap, "t", group="g", on_revoked=revoked).open()
    while not consumer.assignment:
        consumer.poll(100)
    consumer.close()
    assert told == ["revoked"]


@pytest.mark.parametrize(
    "made",
    [
        lambda at: aio.Admin(at),
        lambda at: aio.Producer(at),
        lambda at: aio.Consumer(at, "t", group="g"),
        lambda at: aio.Reader(at, "t"),
        lambda at: aio.BatchReader(at),
    ],
)
def test_open_takes_no_longer_than_it_may_and_may_be_called_again(made: Callable[[str], Any]) -> None:
    with World() as world:
        world.create_topic("t")
        world.faults.silence("Metadata")

        async def main() -> None:
            client = made(world.bootstrap)
            started = world.now()
            with pytest.raises(TimeoutError):
                await client.open(0.5)
            assert world.now() - started < 1
            assert await client.open(5) is client
            await client.close()

        world.run(main(), most_seconds=60)
        assert world.leftovers() == []
