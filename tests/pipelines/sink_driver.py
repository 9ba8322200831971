"""The driver's side of a sink in a process of its own, which is killed where it says so.

Arguments: bootstrap, batch number, run id, and where to die: before the transaction ends, at its end, when
what is remembered is in it, after it, or never.
"""

import os
import signal
import sys
from collections.abc import Iterable

import pyarrow as pa

from ottla.client import Producer, Transaction
from ottla.pipelines.sink import writers
from ottla.pipelines.sink.memory import Batch
from ottla.pipelines.sink.options import sink_options
from ottla.pipelines.sink.writers import Staged, commit_batch

TOPIC = "out"
QUERY = "query"


def staged(number: int, run_id: str = "run", topic: str = TOPIC, query_id: str = QUERY) -> list[Staged]:
    """Two tasks' rows, which say which batch they belong to."""
    values = [[b"%d.%d.%d" % (number, task, row) for row in range(3)] for task in range(2)]
    batches = [pa.record_batch({"value": pa.array(rows, pa.binary())}) for rows in values]
    return [Staged({topic: writers._stream([batch])}, query_id, run_id) for batch in batches]


def commit(bootstrap: str, number: int, run_id: str = "run", query_id: str = QUERY, **options: str) -> None:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": TOPIC, **options}
    wanted = sink_options(given, is_stream=True)
    batch = Batch(wanted.generation, query_id, run_id, number)
    commit_batch(wanted, batch, staged(number, run_id, query_id=query_id))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(bootstrap: str, number: str, run_id: str, where: str) -> None:
    if where == "before":
        send = writers._send

        def send_and_die(producer: Producer, staged: Iterable[Staged]) -> None:
            send(producer, staged)
            die()

        writers._send = send_and_die
    if where == "at the end":
        Transaction.__exit__ = lambda *_: die()  # type: ignore[method-assign]
    commit(bootstrap, int(number), run_id)
    if where == "after":
        die()


if __name__ == "__main__":
    main(*sys.argv[1:])
