"""The same client on an event loop: many senders, one consumer. Start a broker first: ottla serve"""

import asyncio
import sys

from ottla.client.aio import Consumer, Producer

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"


async def visit(producer: Producer, visitor: int) -> int:
    delivery = await producer.send("visits", b"visitor %d" % visitor)
    return delivery.offset


async def main() -> None:
    async with Producer(ADDRESS, create_topics=True) as producer:
        offsets = await asyncio.gather(*(visit(producer, visitor) for visitor in range(100)))
    print(f"{len(offsets)} visits, the last at offset {max(offsets)}")
    async with Consumer(ADDRESS, "visits", group="counters") as consumer:
        count = 0
        async for _ in consumer:
            count += 1
            if count == len(offsets):
                break
    print(f"{count} visits counted")


asyncio.run(main())
