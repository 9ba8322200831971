"""Where a table goes on in its topic, and when it must not."""

from __future__ import annotations

import pytest

from ottla.client import Admin, ServerError
from ottla.pipelines.tables.topic_ends import (
    Span,
    TopicChanged,
    await_topics,
    check_mark,
    lag_records,
    spans,
    starting_offsets,
    topic_mark,
)
from ottla.testing import LocalBroker
from tests.pipelines.topics import write

PARTITIONS = {0: Span(5, 20), 1: Span(0, 3)}


def test_a_table_goes_on_behind_what_it_has_and_new_partitions_begin_at_their_first_record() -> None:
    assert starting_offsets("t", PARTITIONS, {("t", 0): 9}) == {"0": 10, "1": 0}
    assert starting_offsets("t", PARTITIONS, {("t", 0): 4, ("t", 1): 2}) == {"0": 5, "1": 3}
    assert starting_offsets("t", PARTITIONS, {}) == {"0": 5, "1": 0}
    assert lag_records("t", PARTITIONS, {("t", 0): 9}) == 13


def test_changes_that_the_retention_has_removed_are_a_loss() -> None:
    with pytest.raises(TopicChanged, match=r"the table has offset 3, but the topic begins at 5.*failOnDataLoss"):
        starting_offsets("t", PARTITIONS, {("t", 0): 3})
    assert starting_offsets("t", PARTITIONS, {("t", 0): 3}, fails_on_data_loss=False) == {"0": 5, "1": 0}


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_ends_before_what_the_table_has_is_another(fails: bool) -> None:
    with pytest.raises(TopicChanged, match="the table has offset 20, but the topic ends at 20"):
        starting_offsets("t", PARTITIONS, {("t", 0): 20}, fails_on_data_loss=fails)


def test_a_topic_that_was_created_again_is_known_by_its_mark(ottla: LocalBroker) -> None:
    """Also when it has grown longer than the old one was."""
    ottla.topic("again")
    mark = topic_mark(ottla.bootstrap, "again")
    check_mark(mark, {})
    check_mark(mark, mark)
    with Admin(ottla.bootstrap) as admin:
        admin.delete_topics(["again"])
    ottla.topic("again")
    write(ottla, "again", range(30), partitions=1)
    with pytest.raises(TopicChanged, match="again was deleted and created again"):
        check_mark(topic_mark(ottla.bootstrap, "again"), mark)
    assert spans(ottla.bootstrap, "again") == {0: Span(0, 30)}


def test_topics_are_waited_for_so_long(ottla: LocalBroker) -> None:
    ottla.topic("there")
    await_topics(ottla.bootstrap, ["there"], 5)
    with pytest.raises(ServerError, match="missing"):
        await_topics(ottla.bootstrap, ["there", "missing"], 0.1)
    await_topics(ottla.bootstrap, ["missing"], 60, should_stop=lambda: True)
