"""The simulated world itself: a seed is a run, faults happen where they are wanted, time costs nothing."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client import ClientError, ClientOptions, RequestTimedOut, ServerError, aio
from ottla.log.errors import StorageFailed
from ottla.testing.files import Effect
from ottla.testing.world import Odds, World, every_cancellation
from ottla.testing.world.world import StandsStill, TooLate

BAD_NETWORK = Odds(error=0.05, cut=0.05, cut_answer=0.05, lose_answer=0.05, delay=0.1, crash=0.02)


async def send_some(world: World, count: int = 30) -> None:
    async with aio.Producer(world.bootstrap) as producer:
        for number in range(count):
            producer.send("t", b"%d" % number)
            await asyncio.sleep(0.01)


def run_once(seed: int) -> tuple[str, int, float]:
    with World(seed, odds=BAD_NETWORK) as world:
        world.create_topic("t", partitions=2)
        try:
            world.run(send_some(world))
        except ClientError:
            pass
        return world.trace(), world.steps, world.now()


def test_a_seed_is_the_same_run_whenever_it_is_made() -> None:
    runs = {seed: run_once(seed) for seed in range(3)}
    assert {seed: run_once(seed) for seed in range(3)} == runs
    assert len({trace for trace, _, _ in runs.values()}) == 3


def test_what_was_sent_lies_in_the_log_and_nothing_is_left() -> None:
    with World(1) as world:
        world.create_topic("t", partitions=2)
        world.run(send_some(world))
        assert sorted(int(record.value or b"") for record in world.committed("t")) == list(range(30))
        assert world.leftovers() == []


def test_what_is_put_there_lies_in_the_log_at_once_or_is_refused() -> None:
    with World() as world:
        world.create_topic("t")
        world.put("t", b"a")
        assert [record.value for record in world.written("t")] == [b"a"]
        world.files.arm(world.files.operation_count + 1, Effect.FAIL)
        with pytest.raises(StorageFailed):
            world.put("t", b"b")
        assert [record.value for record in world.written("t")] == [b"a"]


def test_an_hour_costs_nothing() -> None:
    with World() as world:
        world.run(asyncio.sleep(3000))
        assert world.now() >= 3000
        assert world.steps < 100


@pytest.mark.parametrize("kind", ["lose_answer", "cut", "cut_request", "cut_answer", "crash", "swallow_answer"])
def test_a_request_that_something_happens_to_is_sent_again(kind: str) -> None:
    with World(2) as world:
        world.create_topic("t")
        rule = getattr(world.faults, kind)("Produce")
        produced = world.faults.watch("Produce")
        world.run(send_some(world, 1))
        assert rule.count == 1
        assert produced.count >= 1
        assert [record.value for record in world.written("t")] == [b"0"]


@pytest.mark.parametrize("is_done", [True, False])
def test_an_error_is_given_with_the_work_done_or_not(is_done: bool) -> None:
    with World(3) as world:
        world.create_topic("t")
        error = world.faults.error_after if is_done else world.faults.error
        error("Produce", "INVALID_RECORD", when=lambda request: request.acks == -1)

        async def main() -> None:
            async with aio.Producer(world.bootstrap) as producer:
                with pytest.raises(ServerError, match="INVALID_RECORD"):
                    await producer.send("t", b"x")

        world.run(main())
        assert len(world.written("t")) == is_done


def test_any_api_can_answer_with_any_error() -> None:
    with World(3) as world:
        world.faults.error("DescribeCluster", "CLUSTER_AUTHORIZATION_FAILED")

        async def main() -> None:
            async with aio.Admin(world.bootstrap) as admin:
                with pytest.raises(ServerError, match="CLUSTER_AUTHORIZATION_FAILED"):
                    await admin.describe_cluster()

        world.run(main())


def test_a_silent_broker_is_given_up() -> None:
    with World(4) as world:
        world.faults.silence("DescribeCluster")

        async def main() -> None:
            options = ClientOptions(request_timeout_ms=5_000, retry_timeout_ms=1_000)
            async with aio.Admin(world.bootstrap, options) as admin:
                with pytest.raises(RequestTimedOut):
                    await admin.describe_cluster()

        world.run(main())
        assert world.now() > 5


def test_a_network_that_is_away_brings_late_what_was_sent() -> None:
    with World(5) as world:
        world.create_topic("t")
        world.later(0.05, lambda: world.network.partition(20))
        world.run(send_some(world))
        assert world.now() > 20
        assert len(world.written("t")) == 30


def test_who_waits_for_ever_is_told() -> None:
    with World() as world, pytest.raises(TooLate):
        world.run(asyncio.Event().wait(), most_seconds=10)
    with World() as world:
        world.stop()
        world.event_loop.call_soon(lambda: None)
        with pytest.raises(StandsStill):
            world.event_loop.run_forever()


def test_a_call_is_cancelled_at_each_round() -> None:
    cancelled_at = []

    async def call() -> None:
        for _ in range(5):
            await asyncio.sleep(1)

    def scenario(k: int) -> bool:
        with World() as world:
            is_over = world.run_cancelled(call(), k)
            cancelled_at.append(world.now())
            return is_over

    runs = every_cancellation(scenario)
    assert runs >= 5
    assert sorted(set(cancelled_at)) == [0, 1, 2, 3, 4, 5]
