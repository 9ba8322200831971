"""Consume, transform, produce: each input counts once, though the program dies in the middle of a transaction.

Start a broker first: ottla serve
"""

import sys

from ottla.client import LATEST, Admin, Consumer, NewTopic, Producer, Reader

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
COUNT = 1_000


class Crash(Exception):
    pass


def double(crash_after: int | None) -> None:
    """Doubles numbers, a batch a transaction, until all are done or it crashes."""
    with (
        Producer(ADDRESS, transactional_id="doubler-1") as producer,
        Consumer(ADDRESS, "numbers", group="doublers", delivery="exactly-once", partition_bytes=2_000) as consumer,
    ):
        done = 0
        while done < COUNT and (batches := consumer.poll(2_000)):
            with producer.transaction() as transaction:
                for batch in batches:
                    for record in batch.records:
                        producer.send("doubled", b"%d" % (2 * int(record.value)))
                        done += 1
                transaction.send_offsets(consumer)
                if crash_after is not None and done > crash_after:
                    raise Crash


def main() -> None:
    with Admin(ADDRESS) as admin:
        admin.create_topics([NewTopic("numbers", 2), NewTopic("doubled", 1)])
    with Producer(ADDRESS, batch_bytes=1_000) as producer:
        producer.send_many("numbers", [b"%d" % number for number in range(COUNT)])
    for crash_after in (100, 300):
        try:
            double(crash_after)
        except Crash:
            print(f"crashed after more than {crash_after}, in the middle of a transaction")
    double(None)
    with Reader(ADDRESS, "doubled", end=LATEST) as reader:
        results = sorted(int(record.value) for fetched in reader for record in fetched.records)
    print(f"{len(results)} results, each once: {results == [2 * number for number in range(COUNT)]}")


main()
