"""Options at their edges: what cannot be is refused in the line where it is given, what can be does not spin."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client import AtTime, ClientOptions, Consumer, InvalidRecord, Producer, Reader, TopicPartition, aio
from ottla.client.checks import ON_THE_WIRE
from ottla.client.consumer.options import LEAST as LEAST_OF_CONSUMERS
from ottla.client.network.cluster import LEAST as LEAST_OF_CLIENTS
from ottla.client.producer.producer import LEAST as LEAST_OF_PRODUCERS
from ottla.testing.world import World

NOT_A_NUMBER = float("nan")
MOST_STEPS = 2_000
"""Rounds of the event loop in some seconds: more is a loop that spins."""


def refusals(least: dict[str, Any]) -> list[tuple[str, Any, type[Exception], str]]:
    rows: list[tuple[str, Any, type[Exception], str]] = []
    for name, smallest in least.items():
        if name in ON_THE_WIRE:
            rows.append((name, 1 << 31, ValueError, f"{name} is at most 2,147,483,647, not 2,147,483,648"))
            rows.append((name, smallest + 0.5, TypeError, f"{name} is a whole number, not"))
        rows.append((name, smallest - 1, ValueError, f"{name} is at least {smallest}, not {smallest - 1}"))
        rows.append((name, NOT_A_NUMBER, ValueError, f"{name} is at least"))
        rows.append((name, "5", TypeError, f"{name} is a number, not '5'"))
        rows.append((name, True, TypeError, f"{name} is a number, not True"))
    return rows


@pytest.mark.parametrize(("name", "value", "kind", "says"), refusals(dict(LEAST_OF_CLIENTS)))
def test_no_client_takes(name: str, value: Any, kind: type[Exception], says: str) -> None:
    for made in (Producer, Consumer, aio.Admin):
        with pytest.raises(kind, match=says):
            made("localhost:1", options=ClientOptions(**{name: value}))


@pytest.mark.parametrize(("name", "value", "kind", "says"), refusals(dict(LEAST_OF_PRODUCERS)))
def test_no_producer_takes(name: str, value: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        Producer("localhost:1", **{name: value})


@pytest.mark.parametrize(("name", "value", "kind", "says"), refusals(dict(LEAST_OF_CONSUMERS)))
def test_no_consumer_takes(name: str, value: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        Consumer("localhost:1", "t", group="g", **{name: value})


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("", ValueError, "is not empty"),
        (b"x", TypeError, "is a str, not b'x'"),
        ("x\udc80", ValueError, "cannot be written as UTF-8"),
        ("x" * 40_000, ValueError, "has at most 32,767 bytes, not 40,000"),
    ],
)
def test_names_that_no_broker_could_be_told(name: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=f"transactional_id {says}"):
        Producer("localhost:1", transactional_id=name)
    with pytest.raises(kind, match=f"group {says}"):
        Consumer("localhost:1", "t", group=name)
    with pytest.raises(kind, match=f"instance_id {says}"):
        Consumer("localhost:1", "t", group="g", instance_id=name)
    with pytest.raises(kind, match=f"client_id {says}"):
        aio.Admin("localhost:1", ClientOptions(client_id=name))


@pytest.mark.parametrize("topic", ["", "a b", "x" * 250, "\udc80", "é", 7, b"t"])
def test_topics_that_cannot_be(topic: Any) -> None:
    with pytest.raises(ValueError, match="a topic"):
        Consumer("localhost:1", [topic], group="g")
    with pytest.raises(ValueError, match="a topic"):
        Reader("localhost:1", topic)
    with World() as world:

        async def main() -> None:
            async with aio.Producer(world.bootstrap) as producer:
                with pytest.raises(InvalidRecord, match="a topic"):
                    producer.send(topic, b"x")
                with pytest.raises(InvalidRecord, match="a topic"):
                    await producer.send_many(topic, [b"x"])

        world.run(main())


@pytest.mark.parametrize(
    ("position", "kind"),
    [(-1, ValueError), (1 << 63, ValueError), (True, TypeError), ("0", TypeError), (1.5, TypeError),
     (AtTime(1 << 63), ValueError), (AtTime("now"), TypeError)],  # type: ignore[arg-type]
)  # fmt: skip
def test_positions_that_cannot_be(position: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        Consumer("localhost:1", "t", group="g", start=position)
    for name in ("start", "end", "reset"):
        with pytest.raises(kind):
            Reader("localhost:1", "t", **{name: position})
    with World() as world:
        world.create_topic("t")
        world.put("t", b"0")
        place = TopicPartition("t", 0)

        async def main() -> None:
            async with aio.Consumer(world.bootstrap, group="g") as consumer:
                await consumer.assign([place])
                with pytest.raises(kind):
                    await consumer.seek(place, position)
                if not isinstance(position, AtTime):
                    with pytest.raises(kind):
                        await consumer.commit({place: position})
                assert [batch.next_offset for batch in await consumer.poll(1_000)] == [1]

        world.run(main())
        assert world.steps < MOST_STEPS


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"on_assigned": 5}, TypeError, "on_assigned is a function, not 5"),
        ({"on_lost": "log"}, TypeError, "on_lost is a function, not 'log'"),
        ({"assignors": "range"}, TypeError, r"assignors are a list of names, not 'range'; for one: \['range'\]"),
        ({"isolation": 5}, ValueError, "5 is not a valid Isolation"),
        ({"options": {"client_id": "x"}}, TypeError, "options are ClientOptions, not {"),
        ({"heartbeat_ms": 6_000, "session_timeout_ms": 6_000}, ValueError, "heartbeat_ms=6000 is not below session"),
    ],
)
def test_what_a_consumer_could_do_nothing_with(options: dict[str, Any], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        Consumer("localhost:1", "t", group="g", **options)


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"partitioner": 5}, TypeError, "partitioner is a function, not 5"),
        ({"idempotent": "no"}, TypeError, "idempotent is True, False or None, not 'no'"),
        ({"batch_bytes": 0.5}, TypeError, "batch_bytes is a whole number, not 0.5"),
        ({"max_in_flight": 1.5}, TypeError, "max_in_flight is a whole number, not 1.5"),
    ],
)
def test_what_a_producer_could_do_nothing_with(options: dict[str, Any], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        Producer("localhost:1", **options)


def test_a_fetch_size_below_zero() -> None:
    with pytest.raises(ValueError, match="fetch_bytes is at least 0"):
        Reader("localhost:1", "t", fetch_bytes=-1)


def steps_of(consumer: dict[str, Any], producer: dict[str, Any], client: dict[str, Any]) -> int:
    """Some records there and back, and then the broker is away for some seconds."""
    options = ClientOptions(**{"retry_timeout_ms": 60_000} | client)
    seen: list[Any] = []
    with World() as world:
        world.create_topic("t", partitions=2)

        async def main() -> None:
            async with (
                aio.Producer(world.bootstrap, options=options, **producer) as writer,
                aio.Consumer(world.bootstrap, "t", group="g", options=options, **consumer) as reader,
            ):
                for number in range(6):
                    writer.send("t", b"%d" % number)
                    await writer.flush()
                while len(seen) < 6:
                    seen.extend(record.value for batch in await reader.poll(500) for record in batch.records)
                world.stop()
                writer.send("t", b"later")
                await reader.poll(3_000)
                world.start()
                await writer.flush()

        world.run(main(), most_seconds=300)
        assert len(seen) == 6
        assert len(world.committed("t")) == 7
        return world.steps


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(
    ("consumer", "producer", "client"),
    [
        ({"buffer_bytes": 0, "partition_bytes": 0, "fetch_bytes": 0}, {}, {}),
        ({"fetch_wait_ms": 1, "auto_commit_ms": 50}, {}, {}),
        ({}, {"batch_bytes": 0, "linger_ms": 0, "buffer_bytes": 1}, {}),
        ({}, {"max_in_flight": 1, "batch_bytes": 1}, {"retry_pause_ms": 1, "metadata_age_ms": 100}),
        ({"heartbeat_ms": 100}, {}, {"unknown_topic_timeout_ms": 0}),
    ],
)
def test_the_least_of_each_works(
    consumer: dict[str, Any], producer: dict[str, Any], client: dict[str, Any], protocol: str
) -> None:
    assert steps_of(consumer | {"group_protocol": protocol}, producer, client) < MOST_STEPS
