"""Consumer loss: a record was committed, its reader died before it was processed, and nobody is given it again."""

from __future__ import annotations

import pytest

from ottla.testing import LocalBroker
from tests.compat.reporting_process import eventually
from tests.modes.doomed import COUNT, GROUP, VALUES, Doomed, consumer, take, take_and_commit_by_the_clock

pytestmark = pytest.mark.ottla(topics={"t": 1})
LATER = b"later"


def read_on(broker: LocalBroker) -> list[bytes | None]:
    """What the next reader of the group gets, up to a record that is written now."""
    broker.put("t", LATER)
    values: list[bytes | None] = []
    with consumer(broker.bootstrap, "t", "at-least-once", "next") as reader:
        for message in reader:
            if message.value == LATER:
                break
            values.append(message.value)
    return values


def test_at_most_once_loses_what_was_not_processed(ottla: LocalBroker) -> None:
    ottla.put("t", *VALUES)
    with Doomed(take, ottla, "t", "at-most-once", "3") as reader:
        reader.wait_for("took")
        reader.kill_member()
    assert read_on(ottla) == []


def test_commits_by_the_clock_lose_it_too(ottla: LocalBroker) -> None:
    """`enable.auto.commit` of other clients commits what was handed out. That it is processed is a hope."""
    ottla.put("t", *VALUES)
    with Doomed(take_and_commit_by_the_clock, ottla, "t") as reader:
        reader.wait_for("took")
        ottla.wait_for_lag_zero(GROUP)
        reader.kill_member()
    assert read_on(ottla) == []


def test_at_least_once_commits_by_the_clock_only_what_was_processed(ottla: LocalBroker) -> None:
    ottla.put("t", *VALUES)
    with Doomed(take, ottla, "t", "at-least-once", "3") as reader:
        reader.wait_for("took")
        # The third is in hand, the two before it are done.
        eventually(lambda: ottla.lag(GROUP) == COUNT - 2, lambda: ottla.lag(GROUP))
        reader.kill_member()
    assert read_on(ottla) == VALUES[2:]


def test_a_commit_by_hand_after_the_work_loses_nothing(ottla: LocalBroker) -> None:
    ottla.put("t", *VALUES)
    with consumer(ottla.bootstrap, "t", "at-least-once", "first", auto_commit=False) as reader:
        for message in reader:
            if message.value == VALUES[3]:
                break  # work that fails
            reader.commit()
    assert read_on(ottla) == VALUES[3:]
