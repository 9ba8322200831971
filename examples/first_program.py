"""Ten lines: produce, and consume in a group. Start a broker first: ottla serve"""

import sys

from ottla.client import Consumer, Producer

address = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"

with Producer(address, create_topics=True) as producer:
    for city in ("Brno", "Oslo", "Porto"):
        producer.send("cities", city.encode())

with Consumer(address, "cities", group="tourists") as consumer:
    for message in consumer:
        print(message.value.decode())
        if message.value == b"Porto":
            break
