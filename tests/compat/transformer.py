"""Consumes, transforms and produces in transactions: the process, and what a test sees of it.

At a step that it is told it stops until it is told to go on, so that a test can end it there.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from enum import StrEnum

from tests.compat.reporting_process import Commands, ReportingProcess, tell
from tests.compat.transactional_clients import TRANSACTIONAL, Pipeline, TransactionalClient

MODULE = "tests.compat.transformer"


class Before(StrEnum):
    """Where it can be stopped."""

    NOTHING = "nothing"
    BEGIN = "begin"
    PRODUCE = "produce"
    OFFSETS = "offsets"
    COMMIT = "commit"


class Transformer(ReportingProcess):
    def __init__(self, library: str, pipeline: Pipeline, stop_before: Before = Before.NOTHING) -> None:
        super().__init__(MODULE, library, json.dumps(asdict(pipeline)), stop_before)

    @property
    def committed_count(self) -> int:
        return sum(line[1] for line in self.lines if line[0] == "committed")

    def go_on(self) -> None:
        self.command("go on")


def transformed(value: str) -> str:
    return value.upper()


def run(client: TransactionalClient, stop_before: Before) -> None:
    """Its second transaction is the one that stops: by then it is in full swing."""
    commands = Commands()
    commit_count = 0

    def reach(step: Before) -> None:
        if step is stop_before and commit_count == 1:
            tell("stopped")
            commands.next()
            tell("goes on")

    while True:
        values = client.poll()
        if not values:
            continue
        reach(Before.BEGIN)
        client.begin()
        reach(Before.PRODUCE)
        client.produce([transformed(value) for value in values])
        reach(Before.OFFSETS)
        client.send_offsets()
        reach(Before.COMMIT)
        client.commit()
        commit_count += 1
        tell("committed", len(values))


def main(library: str, pipeline: str, stop_before: Before) -> None:
    """What its client cannot get over ends its life, and another begins."""
    try:
        run(TRANSACTIONAL[library](Pipeline(**json.loads(pipeline))), stop_before)
    except Exception as failure:
        tell("failed", repr(failure))
        os.execv(sys.executable, [sys.executable, "-m", MODULE, library, pipeline, Before.NOTHING])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Before(sys.argv[3]))
