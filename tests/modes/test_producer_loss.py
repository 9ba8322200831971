"""Producer loss: records that a program has sent, and that never reach the broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.client import ClientOptions, DeliveryFailed, DeliveryTimedOut, Producer, aio
from ottla.testing import LocalBroker
from ottla.testing.world import World
from tests.modes.doomed import VALUES, Doomed, send_and_flush, send_and_go_on, send_many

pytestmark = pytest.mark.ottla(topics={"t": 1})


# The process dies with records in its buffer.


def test_what_waits_in_the_buffer_dies_with_the_process(ottla: LocalBroker) -> None:
    with Doomed(send_and_go_on, ottla, "t") as producer:
        producer.wait_for("sent")
        producer.kill()
    assert ottla.values("t") == []


@pytest.mark.parametrize("send", [send_and_flush, send_many])
def test_who_waits_for_the_acknowledgement_has_nothing_in_the_buffer(
    ottla: LocalBroker, send: Callable[..., None]
) -> None:
    with Doomed(send, ottla, "t") as producer:
        producer.wait_for("sent")
        producer.kill()
    assert ottla.values("t") == VALUES


# The network fails.


def test_without_acknowledgements_a_cut_connection_takes_records_along(ottla: LocalBroker) -> None:
    fault = ottla.faults.cut("Produce")
    with Producer(ottla.bootstrap, acks="0") as producer:
        producer.send_many("t", [b"lost"])  # says that all is well
        fault.wait()
    assert ottla.values("t") == []


@pytest.mark.parametrize("acks", ["1", "all"])
def test_with_them_they_are_sent_again(ottla: LocalBroker, acks: str) -> None:
    ottla.faults.cut("Produce")
    with Producer(ottla.bootstrap, acks=acks) as producer:
        producer.send_many("t", [b"kept"])
    assert ottla.values("t") == [b"kept"]


# The broker cannot write.


def test_without_acknowledgements_nobody_hears_that_the_disk_is_full(ottla: LocalBroker) -> None:
    arrival = ottla.faults.watch("Produce")
    with ottla.full_disk(), Producer(ottla.bootstrap, acks="0") as producer:
        producer.send_many("t", [b"lost"])
        arrival.wait()
        assert ottla.values("t") == []
    with Producer(ottla.bootstrap) as producer:
        producer.send_many("t", [b"later"])
    assert ottla.values("t") == [b"later"]


def test_with_them_the_program_is_told(ottla: LocalBroker) -> None:
    with (
        ottla.full_disk(),
        pytest.raises(DeliveryFailed, match="STORAGE"),
        Producer(ottla.bootstrap, options=ClientOptions(retry_timeout_ms=300)) as producer,
    ):
        producer.send("t", b"refused")  # nobody asks what became of it: leaving the block tells
    assert ottla.values("t") == []


@pytest.mark.parametrize("is_written", [True, False])
def test_what_timed_out_may_have_been_written_or_not(is_written: bool) -> None:
    """Both look the same to whoever sent it."""
    with World() as world:
        world.create_topic("t")
        if is_written:
            world.faults.swallow_answer("Produce", times=1_000)
        else:
            world.faults.silence("Produce", times=1_000)

        async def send() -> None:
            async with aio.Producer(world.bootstrap, delivery_timeout_ms=2_000) as producer:
                with pytest.raises(DeliveryTimedOut):
                    await producer.send("t", b"paid")

        world.run(send())
        assert [record.value for record in world.committed("t")] == [b"paid"] * is_written
