"""Consumer duplicates: a record was processed, its offset was not committed, and it is processed again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from ottla.client import CommitFailed, Consumer, Message, Producer
from ottla.testing import LocalBroker
from tests.modes.doomed import (
    COUNT,
    GROUP,
    HEARTBEAT_MS,
    NEVER_MS,
    VALUES,
    Doomed,
    consumer,
    copy,
    copy_in_a_transaction,
)

pytestmark = pytest.mark.ottla(topics={"t": 1, "copies": 1})
STUCK_MS = 300
"""After which a reader that asks for nothing is taken to be stuck."""


# The reader dies between its work and the commit.


def test_at_least_once_does_the_work_again(ottla: LocalBroker) -> None:
    ottla.put("t", *VALUES)
    with Doomed(copy, ottla, "t", "copies") as first:
        first.wait_for("copied")
        first.kill_member()
    with Doomed(copy, ottla, "t", "copies") as second:
        second.wait_for("copied")
    assert Counter(ottla.values("copies")) == dict.fromkeys(VALUES, 2)


def test_exactly_once_keeps_work_and_offsets_together(ottla: LocalBroker) -> None:
    ottla.put("t", *VALUES)
    with Doomed(copy_in_a_transaction, ottla, "t", "copies") as first:
        first.wait_for("copied")
        first.kill_member()
    assert ottla.values("copies") == []
    with (
        Producer(ottla.bootstrap, transactional_id="copier") as writer,
        reader_named(ottla, "second", "exactly-once") as reader,
    ):
        copy_all(reader, writer)
    assert ottla.values("copies") == VALUES
    assert len(ottla.records("copies", committed_only=False)) == 2 * COUNT  # the first try is there, and never shown
    ottla.wait_for_lag_zero(GROUP)


def copy_all(reader: Consumer, writer: Producer, before_commit: Callable[[], None] = lambda: None) -> None:
    """Copy all that there is, a transaction for what comes together."""
    copied = 0
    while copied < COUNT:
        batches = reader.poll()
        with writer.transaction() as transaction:
            for batch in batches:
                writer.send_many("copies", [record.value for record in batch.records])
                copied += len(batch.records)
            if batches:
                before_commit()
                transaction.send_offsets(reader)


# The reader is slow, and taken to be stuck.


def reader_named(broker: LocalBroker, name: str, delivery: str, **options: object) -> Consumer:
    return consumer(broker.bootstrap, "t", delivery, name, **options)


def test_who_does_not_ask_for_more_in_time_loses_its_records_to_others(ottla: LocalBroker) -> None:
    ottla.put("t", b"a")
    with reader_named(ottla, "slow", "at-least-once", max_poll_interval_ms=STUCK_MS) as slow:
        assert next(iter(slow)).value == b"a"
        # The slow one works on it. The group waits for that, and then does without.
        with reader_named(ottla, "other", "at-least-once") as other:
            assert next(iter(other)).value == b"a"


def test_a_handler_may_be_slow(ottla: LocalBroker) -> None:
    ottla.put("t", b"a", b"b")
    handled: list[bytes | None] = []

    def handle(message: Message) -> None:
        handled.append(message.value)
        if message.value == b"b":
            raise KeyboardInterrupt
        leaving = ottla.faults.watch("LeaveGroup")
        beats = ottla.faults.watch("Heartbeat", times=1_000)
        beats.wait(60, count=3 * STUCK_MS // HEARTBEAT_MS)  # far beyond the interval
        assert leaving.count == 0

    with (
        pytest.raises(KeyboardInterrupt),
        reader_named(ottla, "slow", "at-least-once", max_poll_interval_ms=STUCK_MS) as slow,
    ):
        slow.run(handle)
    assert handled == [b"a", b"b"]


def test_exactly_once_refuses_the_work_of_who_was_too_slow(ottla: LocalBroker) -> None:
    ottla.put("t", *VALUES)

    def let_another_do_it() -> None:
        with (
            Producer(ottla.bootstrap, transactional_id="other") as other_writer,
            reader_named(ottla, "other", "exactly-once") as other,
        ):
            copy_all(other, other_writer)

    with (
        Producer(ottla.bootstrap, transactional_id="slow") as writer,
        reader_named(ottla, "slow", "exactly-once", max_poll_interval_ms=STUCK_MS) as slow,
        pytest.raises(CommitFailed),
    ):
        copy_all(slow, writer, let_another_do_it)
    assert ottla.values("copies") == VALUES


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_and_of_who_was_thrown_out_of_the_group(ottla: LocalBroker, group_protocol: str) -> None:
    """It knows that it is no member any more: it must not commit as one who never was in a group."""
    ottla.put("t", *VALUES)
    heartbeat = {"classic": "Heartbeat", "consumer": "ConsumerGroupHeartbeat"}[group_protocol]

    def lose_the_partition() -> None:
        ottla.faults.error(heartbeat, "UNKNOWN_MEMBER_ID", client_id="gone").wait()
        ottla.expel(GROUP, client_id="gone")
        with reader_named(ottla, "other", "exactly-once", group_protocol=group_protocol) as other:
            while not (batches := other.poll()):
                pass
            assert batches[0].records[0].value == VALUES[0]

    with (
        Producer(ottla.bootstrap, transactional_id="gone") as writer,
        reader_named(ottla, "gone", "exactly-once", group_protocol=group_protocol) as gone,
        pytest.raises(CommitFailed),
    ):
        copy_all(gone, writer, lose_the_partition)
    assert ottla.values("copies") == []


# Partitions move while their readers are well.


@pytest.mark.ottla(topics={"t": 2})
@pytest.mark.parametrize(
    ("auto_commit", "comes_again"), [(False, [b"done"]), (True, [])], ids=["commits seldom", "commits what it gives up"]
)
def test_a_rebalance_repeats_what_was_not_committed(
    ottla: LocalBroker, auto_commit: bool, comes_again: list[bytes]
) -> None:
    for partition in range(2):
        ottla.put("t", b"done", partition=partition)
    options = {"auto_commit": auto_commit, "auto_commit_ms": NEVER_MS}
    with reader_named(ottla, "first", "at-least-once", **options) as first:
        done = 0
        while done < 2:
            done += sum(len(batch.records) for batch in first.poll())
        with reader_named(ottla, "second", "at-least-once", **options) as second:
            values: list[bytes | None] = []
            while b"next" not in values:
                first.poll(10)
                values += [record.value for batch in second.poll(0) for record in batch.records]
                if second.assignment and len(ottla.records("t")) == 2:
                    [moved] = second.assignment
                    ottla.put("t", b"next", partition=moved.partition)
            assert values == [*comes_again, b"next"]
