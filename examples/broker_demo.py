"""What Ottla does, in a few seconds: a broker, a client of another make, a kill -9 in between, and the files."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

TOPIC = "weather"
CITIES = ("Brno", "Oslo", "Porto", "Turku")


def say(title: str) -> None:
    print(f"\n== {title}")


@contextlib.contextmanager
def broker(folder: str) -> Iterator[tuple[str, int]]:
    """`ottla serve` as a process of its own, on a free port: its address and process id."""
    command = [
        sys.executable,
        "-m",
        "ottla",
        "serve",
        "--data",
        folder,
        "--listen",
        "127.0.0.1:0",
        "--log-level",
        "error",
    ]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        print(f"{line.strip()}  (after {time.perf_counter() - started:.2f} s)".replace(folder, "the demo's folder"))
        found = re.search(r"on (\S+),", line)
        assert found is not None
        try:
            yield found[1], process.pid
        finally:
            if process.poll() is None:
                process.terminate()


def produce(address: str, numbers: range) -> int:
    """Send with kafka-python and wait for every acknowledgement; the offset of the last."""
    producer = KafkaProducer(bootstrap_servers=address, enable_idempotence=False, compression_type="lz4")
    sent = [
        producer.send(TOPIC, key=CITIES[number % 4].encode(), value=b"%d degrees" % (number * 7 % 35), partition=0)
        for number in numbers
    ]
    offset = max(future.get(10).offset for future in sent)
    producer.close()
    return int(offset)


def consume(address: str, offset: int, count: int) -> list[tuple[int, str, str]]:
    consumer = KafkaConsumer(bootstrap_servers=address)
    partition = TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    consumer.seek(partition, offset)
    found: list[tuple[int, str, str]] = []
    until = time.monotonic() + 10
    while len(found) < count and time.monotonic() < until:
        for records in consumer.poll(500).values():
            found += [(record.offset, record.key.decode(), record.value.decode()) for record in records]
    consumer.close()
    return found[:count]


def main() -> None:
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as folder:
        print(f"Ottla, with its data in {folder} (removed at the end)")
        say("A broker that speaks Kafka's protocol")
        with broker(folder) as (address, process_id):
            admin = KafkaAdminClient(bootstrap_servers=address)
            admin.create_topics([NewTopic(TOPIC, 1, 1)])
            admin.close()
            say(f"kafka-python creates the topic {TOPIC!r}, and sends 1,000 records to it")
            last = produce(address, range(1_000))
            print(f"all acknowledged; the last has offset {last}")
            say("kill -9: the broker gets no chance to say goodbye")
            os.kill(process_id, signal.SIGKILL)
        say("Start it again: what was acknowledged is there")
        with broker(folder) as (address, _):
            found = consume(address, 0, 1_000)
            print(f"kafka-python reads {len(found):,} records, the last with offset {found[-1][0]}")
            last = produce(address, range(1_000, 1_010))
            print(f"and sends ten more; the last has offset {last}")
            for offset, city, value in consume(address, 1_007, 3):
                print(f"  {offset}  {city:6}{value}")
        say("Where the data lies: a folder for each partition, in Kafka's own format")
        for path in sorted(Path(folder, f"{TOPIC}-0").iterdir()):
            print(f"  {path.stat().st_size:>7,}  {path.name}")
        say("Look into it:  ottla log verify")
        verified = subprocess.run(
            [sys.executable, "-m", "ottla", "log", "verify", f"{folder}/{TOPIC}-0"], capture_output=True, text=True
        )
        print(verified.stdout.replace(folder + "/", "").strip())
        print("\nMore on the log itself:  .venv/bin/python examples/log_demo.py")


if __name__ == "__main__":
    main()
