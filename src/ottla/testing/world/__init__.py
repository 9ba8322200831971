"""A world for the client: virtual time, a network from a seed, and the real broker, all on one thread.

    with World(seed=7) as world:
        world.create_topic("orders", partitions=3)
        world.faults.lose_answer("Produce", times=2)

        async def main():
            async with aio.Producer(world.bootstrap) as producer:
                await producer.send("orders", b"x")

        world.run(main())
        assert [record.value for record in world.committed("orders")] == [b"x"]

The client is the real one of `ottla.client.aio`, unchanged: it runs on the world's event loop, whose connections lead
through the world's network to the real broker on simulated files. Time passes only when nobody has anything to do, so
a minute of waiting costs nothing. Everything that is random comes from the seed: a run is the same run whenever it is
made again. `time.monotonic`, `time.time_ns`, `os.urandom` and the module `random` are the world's as long as it is
entered, in the whole process.

- `world.run(coroutine)`: runs it to its end; `run(..., cancel_at=k)` cancels it before the k-th round of the loop, and
  raises asyncio.CancelledError where it ends so. `every_cancellation` goes through all k.
- `world.faults`: what happens to requests, by rule or by chance (faults.py): any error code for any API, with or
  without the work done; answers lost, swallowed (half open), delayed, cut in the middle, altered, garbled; a crash of
  the broker.
- `world.network.partition(seconds)`, `.cut_all()`, `.delays`; `world.crash(down_seconds)`, `world.stop()`,
  `world.start()`: what happens to all.
- `world.later(seconds, function)`: something happens while the client runs.
- `world.committed(topic)`, `world.written(topic)`: what lies in the log, read without any client.
- `world.leftovers()`: tasks, connections and timers that a closed client has left; `world.trace()`: what happened.
- `world.steps`: rounds of the event loop so far, the measure of what an idle client costs.
"""

from ottla.testing.world.cancellation import every_cancellation
from ottla.testing.world.faults import FaultKind, Odds, RequestFault
from ottla.testing.world.world import Stored, World

__all__ = ["FaultKind", "Odds", "RequestFault", "Stored", "World", "every_cancellation"]
