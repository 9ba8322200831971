"""Every anomaly is found in the smallest history that has it, and a history like it without has none."""

from __future__ import annotations

import pytest

from tests.checker.check import DELETE_RETENTION_MS, Anomaly, Kind, find_anomalies
from tests.checker.history import Isolation, Outcome, Place, Step
from tests.checker.story import INPUT, OUTPUT, Story

ALL = Isolation.UNCOMMITTED


@pytest.fixture
def story() -> Story:
    return Story()


def kinds(story: Story) -> list[Kind]:
    return [anomaly.kind for anomaly in find_anomalies(story.events)]


def test_an_empty_history_is_clean() -> None:
    assert find_anomalies([]) == []


def test_reading_all_that_was_written_is_clean(story: Story) -> None:
    story.send("p", "a", 0)
    story.send("p", "b", 1)
    story.position("r", 0)
    story.poll("r", (0, "a"))
    story.poll("r", (1, "b"))
    assert find_anomalies(story.events) == []


def test_an_anomaly_says_what_and_where(story: Story) -> None:
    story.send("p", "a", 0)
    story.send("p", "b", 1)
    story.position("r", 0)
    story.poll("r", (1, "b"))
    assert find_anomalies(story.events) == [Anomaly(Kind.LOST_WRITE, "a at input-0 offset 0")]


def test_a_write_that_nobody_has_reached_is_not_lost(story: Story) -> None:
    story.send("p", "a", 0)
    story.send("p", "b", 1)
    story.position("r", 0)
    story.poll("r", (0, "a"))
    assert kinds(story) == []


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.FAILED])
def test_a_write_that_was_not_acknowledged_may_be_missing(story: Story, outcome: Outcome) -> None:
    story.invoke_send("p", "a")
    story.end_send("p", "a", outcome=outcome)
    story.send("p", "b", 0)
    story.position("r", 0)
    story.poll("r", (0, "b"))
    assert kinds(story) == []


def test_a_write_that_was_not_acknowledged_may_be_there(story: Story) -> None:
    story.invoke_send("p", "a")
    story.position("r", 0)
    story.poll("r", (0, "a"))
    assert kinds(story) == []


def test_a_log_that_was_cut_has_lost_writes(story: Story) -> None:
    story.send("p", "a", 0)
    story.send("p", "b", 1)
    story.see_end("r", 1)
    assert kinds(story) == [Kind.LOST_WRITE]


def test_an_end_that_was_seen_before_the_write_proves_nothing(story: Story) -> None:
    story.invoke_send("p", "a")
    story.see_end("r", 0)
    story.end_send("p", "a", 0)
    assert kinds(story) == []


def test_writes_acknowledged_without_an_offset(story: Story) -> None:
    for value in "abc":
        story.send("p", value, -1)
    story.position("r", 0)
    story.poll("r", (0, "a"), (1, "c"))
    assert kinds(story) == []  # b may lie behind that
    story.see_end("r", 2)
    assert find_anomalies(story.events) == [Anomaly(Kind.LOST_WRITE, "b in input-0, which was read from 0 to 2")]


@pytest.mark.parametrize("place", [INPUT, OUTPUT])
def test_a_duplicate(story: Story, place: Place) -> None:
    story.send("p", "a", 0)
    story.poll("r", (5, "a"), place=place)
    assert kinds(story) == [Kind.DUPLICATE]


def test_an_offset_with_two_values(story: Story) -> None:
    story.send("p", "a", 0)
    story.invoke_send("q", "b")
    story.poll("r", (0, "a"))
    story.poll("s", (0, "b"))
    assert kinds(story) == [Kind.INCONSISTENT_OFFSET]


def test_an_offset_acknowledged_twice(story: Story) -> None:
    story.send("p", "a", 0)
    story.send("q", "b", 0)
    assert kinds(story) == [Kind.INCONSISTENT_OFFSET]


def test_a_skipped_poll(story: Story) -> None:
    for offset, value in enumerate("abc"):
        story.send("p", value, offset)
    story.position("r", 0)
    story.poll("r", (0, "a"), (1, "b"), (2, "c"))
    story.position("s", 0)
    story.poll("s", (0, "a"))
    story.poll("s", (2, "c"))
    assert kinds(story) == [Kind.SKIPPED_POLL]


def test_a_skip_inside_a_poll(story: Story) -> None:
    for offset, value in enumerate("abc"):
        story.send("p", value, offset)
    story.poll("r", (0, "a"), (1, "b"), (2, "c"))
    story.poll("s", (0, "a"), (2, "c"), isolation=ALL)
    assert kinds(story) == [Kind.SKIPPED_POLL]


def test_a_reader_that_seeks_skips_nothing(story: Story) -> None:
    for offset, value in enumerate("abc"):
        story.send("p", value, offset)
    story.position("r", 0)
    story.poll("r", (0, "a"))
    story.position("r", 2)
    story.poll("r", (2, "c"))
    assert kinds(story) == []


def test_a_backward_poll(story: Story) -> None:
    story.send("p", "a", 0)
    story.send("p", "b", 1)
    story.poll("r", (0, "a"), (1, "b"))
    story.poll("r", (1, "b"))
    assert kinds(story) == [Kind.BACKWARD_POLL]


def test_a_poll_that_is_not_in_order(story: Story) -> None:
    story.send("p", "a", 0)
    story.send("p", "b", 1)
    story.poll("r", (1, "b"), (0, "a"), next_offset=2)
    assert kinds(story) == [Kind.BACKWARD_POLL]


def test_going_back_by_a_seek_or_a_rebalance_is_clean(story: Story) -> None:
    story.send("p", "a", 0)
    story.assign("r", 0)
    story.poll("r", (0, "a"))
    story.position("r", 0)
    story.poll("r", (0, "a"))
    story.revoke("r")
    story.assign("r", 0)
    story.poll("r", (0, "a"))
    assert kinds(story) == []


def test_control_records_are_passed_over(story: Story) -> None:
    story.send("p", "a", 0, transaction="t")
    story.end("p", "t", Step.COMMIT)
    story.send("p", "b", 2)
    story.position("r", 0)
    story.poll("r", (0, "a"), (2, "b"))
    assert kinds(story) == []


def test_aborted_records_are_passed_over(story: Story) -> None:
    story.send("p", "a", 0, transaction="t")
    story.end("p", "t", Step.ABORT)
    story.send("p", "b", 2)
    story.position("r", 0)
    story.poll("r", (2, "b"))
    story.position("s", 0)
    story.poll("s", (0, "a"), (2, "b"), isolation=ALL)
    assert kinds(story) == []


@pytest.mark.parametrize("is_invoked", [False, True])
def test_an_aborted_read(story: Story, is_invoked: bool) -> None:
    """What was never to be committed, as of a killed client, is aborted too."""
    story.send("p", "a", 0, transaction="t")
    if is_invoked:
        story.end("p", "t", Step.ABORT)
    story.poll("r", (0, "a"))
    assert kinds(story) == [Kind.ABORTED_READ]


def test_a_reader_of_everything_is_given_aborted_records(story: Story) -> None:
    story.send("p", "a", 0, transaction="t")
    story.poll("r", (0, "a"), isolation=ALL)
    story.end("p", "t", Step.ABORT)
    assert kinds(story) == []


def test_a_read_before_the_commit(story: Story) -> None:
    story.send("p", "a", 0, transaction="t")
    story.poll("r", (0, "a"))
    story.end("p", "t", Step.COMMIT)
    assert kinds(story) == [Kind.READ_BEFORE_COMMIT]


def test_a_read_while_the_commit_is_under_way_is_clean(story: Story) -> None:
    story.send("p", "a", 0, transaction="t")
    story.step("p", "t", Step.COMMIT, Outcome.INVOKED)
    story.poll("r", (0, "a"))
    story.step("p", "t", Step.COMMIT, Outcome.OK)
    assert kinds(story) == []


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.UNKNOWN])
def test_a_torn_transaction(story: Story, outcome: Outcome) -> None:
    """Half of it being there proves that a commit without an answer took place."""
    story.send("p", "a", 0, INPUT, transaction="t")
    story.send("p", "b", 0, OUTPUT, transaction="t")
    story.end("p", "t", Step.COMMIT, outcome)
    story.position("r", 0)
    story.position("r", 0, OUTPUT)
    story.poll("r", (0, "a"))
    story.poll("r", place=OUTPUT, next_offset=2)
    assert kinds(story) == [Kind.TORN_TRANSACTION]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_commit_without_an_answer_may_go_either_way(story: Story, is_there: bool) -> None:
    story.send("p", "a", 0, transaction="t")
    story.step("p", "t", Step.COMMIT, Outcome.INVOKED)
    story.position("r", 0)
    story.poll("r", *([(0, "a")] if is_there else []), next_offset=2)
    assert kinds(story) == []


def test_a_committed_transaction_that_nobody_sees_is_lost(story: Story) -> None:
    story.send("p", "a", 0, transaction="t")
    story.end("p", "t", Step.COMMIT)
    story.position("r", 0)
    story.poll("r", next_offset=2)
    story.poll("s", (0, "a"), isolation=ALL)
    assert kinds(story) == [Kind.LOST_WRITE]


def test_writes_out_of_order(story: Story) -> None:
    story.send("p", "a", 1)
    story.send("p", "b", 0)
    assert kinds(story) == [Kind.OUT_OF_ORDER]


def test_writes_of_two_producers_have_no_order(story: Story) -> None:
    story.send("p", "a", 1)
    story.send("q", "b", 0)
    story.send("p", "c", 0, OUTPUT)
    assert kinds(story) == []


def transform(story: Story, transaction: str, source: str, offset: int, ending: Step = Step.COMMIT) -> None:
    """An input record is made into an output record of the same offset, two for each with the marker."""
    output = f"{source} by {transaction}"
    story.send("w", output, 2 * offset, OUTPUT, transaction=transaction, source=source)
    story.commit_offset("w", offset + 1, transaction=transaction)
    story.end("w", transaction, ending)


def test_each_input_transformed_once_is_clean(story: Story) -> None:
    story.send("p", "a", 0)
    story.send("p", "b", 1)
    transform(story, "t", "a", 0)
    transform(story, "u", "b", 1, Step.ABORT)
    transform(story, "v", "b", 2)
    assert kinds(story) == []


def test_an_input_transformed_twice(story: Story) -> None:
    story.send("p", "a", 0)
    transform(story, "t", "a", 0)
    transform(story, "u", "a", 1)
    assert kinds(story) == [Kind.DUPLICATE]


def test_an_input_that_was_passed_and_not_transformed(story: Story) -> None:
    story.send("p", "a", 0)
    story.send("p", "b", 1)
    transform(story, "t", "b", 1)
    assert kinds(story) == [Kind.LOST_WRITE]


def test_an_input_that_was_never_committed_needs_no_output(story: Story) -> None:
    story.send("p", "a", 0, transaction="s")
    story.end("p", "s", Step.ABORT)
    story.send("p", "b", 2)
    transform(story, "t", "b", 2)
    assert kinds(story) == []


def test_a_committed_offset_that_went_back(story: Story) -> None:
    story.commit_offset("r", 7)
    story.revoke("r")
    story.assign("s", 5)
    assert kinds(story) == [Kind.LOST_COMMIT]


def test_a_committed_offset_of_a_transaction_that_went_back(story: Story) -> None:
    story.commit_offset("w", 1, transaction="t")
    story.end("w", "t", Step.COMMIT)
    story.assign("v", 0)
    assert kinds(story) == [Kind.LOST_COMMIT]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.UNKNOWN])
def test_an_offset_that_was_not_acknowledged_may_be_gone(story: Story, outcome: Outcome) -> None:
    story.commit_offset("r", 7, outcome=outcome)
    story.assign("s", 5)
    assert kinds(story) == []


def test_offsets_of_other_groups_do_not_count(story: Story) -> None:
    story.commit_offset("r", 7)
    story.assign("s", 5, group="other")
    story.assign("s", 5, OUTPUT)
    assert kinds(story) == []


def test_what_nobody_sent(story: Story) -> None:
    story.poll("r", (0, "a"))
    assert kinds(story) == [Kind.UNSENT_READ]


@pytest.mark.parametrize("given", [[(0, "old")], [(0, "old"), (2, "other")]])
def test_a_key_whose_deletion_is_gone_and_its_value_is_not_is_there_again(
    story: Story, given: list[tuple[int, str]]
) -> None:
    story.send("p", "old", 0, key="k")
    story.send("p", "deletion", 1, key="k", is_tombstone=True)
    story.send("p", "other", 2, key="l")
    story.position("r", 0)
    story.poll("r", *given, next_offset=3)
    assert Kind.RESURRECTED_KEY in kinds(story)


def test_a_deletion_may_be_missed_if_its_key_was_written_again(story: Story) -> None:
    story.send("p", "old", 0, key="k")
    story.send("p", "deletion", 1, key="k", is_tombstone=True)
    story.send("p", "new", 2, key="k")
    story.position("r", 0)
    story.poll("r", (0, "old"), next_offset=2)
    assert Kind.RESURRECTED_KEY not in kinds(story)


def test_who_reads_for_longer_than_deletions_are_kept_may_miss_one(story: Story) -> None:
    story.send("p", "old", 0, key="k")
    story.send("p", "deletion", 1, key="k", is_tombstone=True)
    story.position("r", 0)
    story.wait(DELETE_RETENTION_MS)
    story.poll("r", (0, "old"), next_offset=2)
    assert Kind.RESURRECTED_KEY not in kinds(story)


@pytest.mark.parametrize(
    ("given", "next_offset"),
    [
        ([], 2),  # both are gone
        ([(1, "deletion")], 2),
        ([(0, "old"), (1, "deletion")], 2),
        ([(0, "old")], 1),  # it has not come to the deletion
    ],
)
def test_a_deleted_key_may_be_there_with_its_deletion(
    story: Story, given: list[tuple[int, str]], next_offset: int
) -> None:
    story.send("p", "old", 0, key="k")
    story.send("p", "deletion", 1, key="k", is_tombstone=True)
    story.position("r", 0)
    story.poll("r", *given, next_offset=next_offset)
    assert kinds(story) == []


def test_a_deletion_that_was_aborted_deletes_nothing(story: Story) -> None:
    story.send("p", "old", 0, key="k")
    story.send("p", "deletion", 1, key="k", is_tombstone=True, transaction="t")
    story.end("p", "t", Step.ABORT)
    story.position("r", 0)
    story.poll("r", (0, "old"), next_offset=3)
    assert kinds(story) == []


@pytest.mark.parametrize("is_committed", [False, True])
def test_what_may_have_been_aborted_may_be_compacted_away(story: Story, is_committed: bool) -> None:
    """A reader of everything was given it before; its commit had no answer, and did not take place."""
    story.send("p", "value", 0, key="k", transaction="t")
    story.end("p", "t", Step.COMMIT, Outcome.OK if is_committed else Outcome.UNKNOWN)
    for reader, given in (("r", [(0, "value")]), ("later", [])):
        story.position(reader, 0)
        story.poll(reader, *given, next_offset=2, isolation=Isolation.UNCOMMITTED)
    assert kinds(story) == ([Kind.SKIPPED_POLL] if is_committed else [])
