"""A process that sends change events of keys at random, so many a second, and says how many it sent.

Arguments: bootstrap, topic, changes a second, seconds, rows of the table.
"""

import sys
import time

import numpy as np

from ottla.client import NewRecord, Producer

TICK_SECONDS = 0.05
FIRST_POSITION = 10  # behind those of the rows that the table begins with
SEED = 7
VALUE = (
    b'{"op":"u","key":{"id":%d},"before":null,"after":{"id":%d,"name":"name %d","amount":%d.25,"count":%d},'
    b'"position":%d,"commit_time":%d,"schema":{"version":1,'
    b'"columns":{"id":"bigint","name":"string","amount":"double","count":"bigint"}}}'
)


def keys_of(rate: int, seconds: int, size: int) -> np.ndarray:
    """The same for who sends and for who checks: the position of a change is its place here, from FIRST_POSITION on."""
    return np.random.default_rng(SEED).integers(0, size, rate * seconds)


def main(bootstrap: str, topic: str, rate: int, seconds: int, size: int) -> None:
    keys = keys_of(rate, seconds, size).tolist()
    sent = 0
    with Producer(bootstrap) as producer:
        begun = time.monotonic()
        while sent < len(keys):
            due = min(int((time.monotonic() - begun) * rate), len(keys))
            now_ms = time.time_ns() // 1_000_000
            producer.send_many(
                topic,
                [
                    NewRecord(VALUE % (key, key, key % 1000, key % 997, position, position, now_ms), b'{"id":%d}' % key)
                    for position, key in enumerate(keys[sent:due], FIRST_POSITION + sent)
                ],
            )
            sent = due
            time.sleep(TICK_SECONDS)
    print(sent / (time.monotonic() - begun))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
