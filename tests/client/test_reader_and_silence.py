"""A reader whose broker says nothing, or is not there: its calls keep to their time, and it gives up when it said."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from ottla import testing
from ottla.client import BrokerUnreachable, ClientOptions, Producer, Reader, aio
from ottla.testing import LocalBroker

PATIENT = ClientOptions(request_timeout_ms=60_000, retry_timeout_ms=60_000)
SOON_SECONDS = 15


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with testing.broker() as running:
        running.topic("orders")
        write(running, b"first")
        yield running


async def read_past_the_first(reader: aio.Reader) -> None:
    while not await reader.poll():
        pass


async def poll_until_some(reader: aio.Reader) -> list[bytes | None]:
    while True:
        for fetched in await reader.poll(100):
            return [record.value for record in fetched.records]


def poll_for_ever(reader: Reader) -> None:
    while True:
        assert reader.poll(100) == []


def write(broker: LocalBroker, value: bytes) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send_many("orders", [value])


@pytest.mark.parametrize("api", ["Fetch", "Metadata"])
def test_a_poll_ends_in_time_though_nobody_answers(broker: LocalBroker, api: str) -> None:
    async def run() -> None:
        async with aio.Reader(broker.bootstrap, "orders", options=PATIENT) as reader:
            await read_past_the_first(reader)
            fault = broker.faults.silence(api)
            if api != "Fetch":
                broker.faults.cut("Fetch")
            async with asyncio.timeout(SOON_SECONDS):
                while not fault.count:
                    assert await reader.poll(10) == []
                assert await reader.poll(10) == []

    asyncio.run(run())


def test_what_was_asked_for_in_silence_is_not_lost(broker: LocalBroker) -> None:
    async def run() -> None:
        async with aio.Reader(broker.bootstrap, "orders", options=PATIENT._replace(request_timeout_ms=1_500)) as reader:
            await read_past_the_first(reader)
            broker.faults.silence("Fetch")
            assert await reader.poll(10) == []
            await asyncio.to_thread(write, broker, b"second")
            async with asyncio.timeout(SOON_SECONDS):
                assert await poll_until_some(reader) == [b"second"]

    asyncio.run(run())


def test_a_broker_that_is_away_is_waited_for_once_as_long_as_said(broker: LocalBroker) -> None:
    """The search for the topic has no time of its own behind it."""
    with Reader(broker.bootstrap, "orders", options=ClientOptions(retry_timeout_ms=3_000)) as reader:
        assert reader.poll()
        broker.stop()
        began = time.monotonic()
        with pytest.raises(BrokerUnreachable):
            poll_for_ever(reader)
        assert time.monotonic() - began < 5  # twice the time would be 6
        broker.start()
        write(broker, b"second")
        assert [record.value for fetched in reader.poll() or reader.poll(5_000) for record in fetched.records] == [
            b"second"
        ]
