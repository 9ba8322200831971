"""A broker with a mistake that was made on purpose: `python -m tests.checker.broken_broker MISTAKE serve ...`.

The checker must find each of them from what clients see.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ottla.cli.main import main
from tests.checker.check import Kind

FORGOTTEN_RECORDS = 5
LOST_ANSWERS = 40  # each of so many is not given


def show_aborted() -> None:
    """Readers of what is committed are not told what was aborted."""
    from ottla.replica.partition import Partition

    read: Callable[..., Any] = Partition.read

    def read_all(partition: Partition, *arguments: Any, **options: Any) -> Any:
        found = read(partition, *arguments, **options)
        return found._replace(aborted=[]) if found.aborted else found

    setattr(Partition, "read", read_all)  # noqa: B010


def show_undecided() -> None:
    """Readers of what is committed do not wait for the end of transactions."""
    from ottla.replica import machine

    setattr(machine, "stable_offset", lambda high_watermark, *_: high_watermark)  # noqa: B010


def forget_the_tail() -> None:
    """A start loses the last records of each log."""
    from ottla.log.manager import LogManager

    open_all = LogManager.open

    def open_shorter(logs: LogManager, config_for: Any, now_ms: int) -> None:
        open_all(logs, config_for, now_ms)
        for (topic, _), log in logs.logs.items():
            if not topic.startswith("__"):
                log.truncate_to(max(log.log_start_offset, log.end_offset - FORGOTTEN_RECORDS), now_ms)

    setattr(LogManager, "open", open_shorter)  # noqa: B010


def forget_offsets() -> None:
    """A coordinator that loads takes in only the first offset of each partition of a group."""
    from ottla.coordinator.offsets.offsets import Offsets

    put: Callable[..., Any] = Offsets.put
    from ottla.broker.coordinators.loading import Replay

    replay: Callable[..., None] = Replay._record

    def put_first(offsets: Offsets, group: str, partition: Any, value: Any, producer_id: int) -> Any:
        if getattr(offsets, "is_loading", False):
            seen = offsets.__dict__.setdefault("seen", set())
            if (group, partition) in seen:
                return None
            seen.add((group, partition))
        return put(offsets, group, partition, value, producer_id)

    def replay_some(loading: Any, *arguments: Any) -> None:
        offsets = getattr(loading._machine, "offsets", None)
        if offsets is not None:
            offsets.is_loading = True
        replay(loading, *arguments)
        if offsets is not None:
            offsets.is_loading = False

    setattr(Offsets, "put", put_first)  # noqa: B010
    setattr(Replay, "_record", replay_some)  # noqa: B010


def write_twice() -> None:
    """Some answers are lost, and what is sent again is written again."""
    from ottla.broker.broker import Broker
    from ottla.log.producers import Producers
    from ottla.testing.faults import Faults, FaultyDispatch
    from ottla.wire import apis
    from ottla.wire.header import read_request_header

    class LosesAnswers(FaultyDispatch):
        def __init__(self, broker: Broker) -> None:
            super().__init__(broker, Faults())
            self._count = 0

        def handle(self, connection: Any, frame: memoryview) -> None:
            self._count += read_request_header(frame).api is apis.PRODUCE
            if self._count == LOST_ANSWERS:
                self._count = 0
                self.lose_answer(connection, frame)
            else:
                super().handle(connection, frame)

    make: Callable[..., None] = Broker.__init__

    def make_lossy(broker: Broker, *arguments: Any, **options: Any) -> None:
        make(broker, *arguments, **options, make_dispatch=LosesAnswers)

    setattr(Broker, "__init__", make_lossy)  # noqa: B010
    setattr(Producers, "find_duplicate", lambda _producers, _header: None)  # noqa: B010
    setattr(Producers, "check", lambda *_arguments, **_options: None)  # noqa: B010


def keep_what_is_deleted() -> None:
    """Compaction removes deletions, and leaves what they delete."""
    from ottla.log.compaction import Keeper
    from ottla.records.codec import decode_keys

    def mask(_keeper: Any, _header: Any, portion: Any) -> Any:
        entries = decode_keys(portion.area, portion.records)
        return bytes(not is_tombstone for _, _, is_tombstone in entries), False

    setattr(Keeper, "_mask", mask)  # noqa: B010


MISTAKES: dict[str, tuple[Callable[[], None], set[Kind]]] = {
    "aborted": (show_aborted, {Kind.ABORTED_READ}),
    "undecided": (show_undecided, {Kind.READ_BEFORE_COMMIT}),
    "tail": (forget_the_tail, {Kind.LOST_WRITE}),
    "offsets": (forget_offsets, {Kind.LOST_COMMIT}),
    "deleted": (keep_what_is_deleted, {Kind.RESURRECTED_KEY}),
    "twice": (write_twice, {Kind.DUPLICATE}),
}
"""Each with what the checker must find, among other things."""


if __name__ == "__main__":
    MISTAKES[sys.argv[1]][0]()
    sys.exit(main(sys.argv[2:]))
