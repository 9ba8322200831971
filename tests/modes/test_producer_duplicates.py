"""Producer duplicates: a record was written, its acknowledgement was lost, and it is sent again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import pytest

from ottla.client import ClientError, ClientOptions, Producer, aio
from ottla.testing import LocalBroker
from ottla.testing.world import Odds, World

pytestmark = pytest.mark.ottla(topics={"t": 1})
Send = Callable[[LocalBroker, Sequence[bytes], bool], None]


def send_with_ottla(broker: LocalBroker, values: Sequence[bytes], idempotent: bool) -> None:
    with Producer(broker.bootstrap, idempotent=idempotent) as producer:
        producer.send_many("t", values)


def send_with_confluent(broker: LocalBroker, values: Sequence[bytes], idempotent: bool) -> None:
    options = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": idempotent, "log_level": 0}
    producer = confluent_kafka.Producer({**options, "retry.backoff.ms": 20})
    for value in values:
        producer.produce("t", value)
    assert producer.flush(60) == 0


clients = pytest.mark.parametrize("send", [send_with_ottla, send_with_confluent])


@clients
def test_a_lost_acknowledgement_doubles_a_record(ottla: LocalBroker, send: Send) -> None:
    ottla.faults.lose_answer("Produce")
    send(ottla, [b"paid"], False)
    assert ottla.values("t") == [b"paid", b"paid"]


@clients
def test_an_idempotent_producer_is_recognized(ottla: LocalBroker, send: Send) -> None:
    ottla.faults.lose_answer("Produce", times=3)
    send(ottla, [b"paid"], True)
    assert ottla.values("t") == [b"paid"]


@clients
def test_also_by_a_broker_that_was_killed_in_between(ottla: LocalBroker, send: Send) -> None:
    lost = ottla.faults.lose_answer("Produce")
    ottla.faults.cut("Produce", times=1_000)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send, ottla, [b"paid"], True)
        lost.wait()
        ottla.restart(kill=True)
        ottla.faults.clear()
        sending.result()
    assert ottla.values("t") == [b"paid"]


def test_without_acknowledgements_nothing_comes_twice_or_out_of_order() -> None:
    """Whatever is lost on the way."""
    odds = Odds(cut=0.1, cut_request=0.05, silence=0.02, delay=0.1, crash=0.02)
    for seed in range(10):
        with World(seed) as world:
            world.create_topic("t")
            options = ClientOptions(request_timeout_ms=1_000, retry_timeout_ms=5_000)

            async def send(world: World = world, options: ClientOptions = options) -> None:
                async with aio.Producer(world.bootstrap, acks="0", linger_ms=0, options=options) as producer:
                    world.faults.at_random(odds)
                    for number in range(60):
                        try:
                            await producer.send("t", b"%d" % number)
                        except ClientError:
                            pass

            world.run(send())
            world.faults.clear()
            world.advance(5)
            numbers = [int(record.value or b"") for record in world.written("t")]
            assert numbers == sorted(set(numbers)), f"seed {seed}"


def test_an_idempotent_program_that_starts_again_is_another_one(ottla: LocalBroker) -> None:
    for _ in range(2):
        send_with_ottla(ottla, [b"paid"], True)
    assert ottla.values("t") == [b"paid", b"paid"]


def test_a_program_that_starts_again_under_its_transactional_id_writes_once(ottla: LocalBroker) -> None:
    """The first one dies in the middle of its transaction; what it has written is never seen."""
    first = Producer(ottla.bootstrap, transactional_id="payer").open()
    first.transaction().__enter__()
    first.send_many("t", [b"paid"])
    with Producer(ottla.bootstrap, transactional_id="payer") as second, second.transaction():
        second.send("t", b"paid")
    with pytest.raises(ClientError):
        first.send_many("t", [b"paid"])
    first.close()
    assert ottla.values("t") == [b"paid"]
