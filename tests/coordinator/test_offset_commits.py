"""Committed offsets: who may commit, what is read back, what transactions hold back, and how offsets go."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.offsets.offsets import Offsets
from ottla.coordinator.offsets.removal import EXPIRY, LOOKED_AT_ONCE
from ottla.coordinator.operation import Operation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.group_records import GROUP_RECORDS
from ottla.wire.messages.offset_and_group_records import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tests.coordinator.classic_members import GROUP, SESSION_MS, ClassicWorld
from tests.coordinator.driver import Logged

PRODUCER = (7, 0)
RETENTION_MS = 60_000
DAY_MS = 86_400_000


@pytest.fixture
def world() -> ClassicWorld:
    return ClassicWorld()


@pytest.fixture
def forgetful() -> ClassicWorld:
    """Offsets do not stay long, and are looked for often."""
    return ClassicWorld(offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=1000)


def delete(world: ClassicWorld, group_id: str = GROUP) -> ErrorCode:
    asked = world.driver.ask(
        lambda machine, operation, reply: operation.answer(reply, machine.removal.delete_group(operation, group_id))
    )
    return ErrorCode(asked.response)


# Who may commit


def test_a_commit_by_nobody_in_particular_makes_a_group_that_only_keeps_offsets(world: ClassicWorld) -> None:
    assert world.commit({0: 5, 3: 7}) == [ErrorCode.NONE, ErrorCode.NONE]
    assert world.offsets() == {0: 5, 3: 7}
    assert (world.state, world.group.protocol_type) == ("Empty", "")
    world.driver.crash()
    assert world.offsets() == {0: 5, 3: 7}
    assert (world.state, world.group.protocol_type) == ("Empty", "")


@pytest.mark.parametrize(
    ("committer", "code"),
    [
        ({"epoch": 1}, ErrorCode.NONE),
        ({"epoch": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"epoch": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"epoch": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"epoch": 1, "member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"epoch": -1, "member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"epoch": 1, "instance_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_in_a_group_at_work_only_its_members_commit(
    world: ClassicWorld, committer: dict[str, Any], code: ErrorCode
) -> None:
    [member] = world.stable(1)
    assert world.commit({0: 1}, **{"member_id": member, **committer}) == [code]
    assert world.offsets() == ({0: 1} if code is ErrorCode.NONE else {})


def test_commits_in_the_course_of_a_rebalance(world: ClassicWorld) -> None:
    leader, _ = world.stable(2)
    world.join(leader)
    assert world.commit({0: 1}, member_id=leader, epoch=2) == [ErrorCode.NONE]
    joined = world.enter(group_id="other")
    world.driver.advance(0)
    member = joined.response.member_id
    refused = world.commit({0: 1}, member_id=member, epoch=1, group_id="other")
    assert refused == [ErrorCode.REBALANCE_IN_PROGRESS]


@pytest.mark.parametrize(
    ("committer", "code"),
    [
        ({"epoch": -1}, ErrorCode.NONE),
        ({"epoch": -1, "member_id": "stranger"}, ErrorCode.NONE),
        ({"epoch": 3}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_into_a_group_that_is_empty_again(world: ClassicWorld, committer: dict[str, Any], code: ErrorCode) -> None:
    world.stable(1)
    world.driver.advance(SESSION_MS)
    assert world.commit({0: 1}, **committer) == [code]


@pytest.mark.parametrize(
    ("version", "producer", "code"),
    [
        (8, (-1, -1), ErrorCode.ILLEGAL_GENERATION),
        (9, (-1, -1), ErrorCode.GROUP_ID_NOT_FOUND),
        (5, PRODUCER, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_a_generation_of_a_group_that_is_not_there(
    world: ClassicWorld, version: int, producer: tuple[int, int], code: ErrorCode
) -> None:
    assert world.commit({0: 1}, epoch=0, version=version, producer=producer) == [code]
    assert GROUP not in world.driver.machine.groups


def test_too_much_metadata_refuses_one_partition_only(world: ClassicWorld) -> None:
    assert world.commit({0: 1}, metadata="x" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.commit({0: 1}, metadata="x" * 4096) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("metadata", "code"), [("x" * 4000, ErrorCode.NONE), ("€" * 4000, ErrorCode.UNKNOWN_SERVER_ERROR)]
)
def test_a_commit_is_as_large_as_its_bytes(world: ClassicWorld, metadata: str, code: ErrorCode) -> None:
    world.topics.add("wide", 100)
    assert set(world.commit(dict.fromkeys(range(100), 1), topic="wide", metadata=metadata)) == {code}


def test_records_are_those_that_apache_kafka_writes(world: ClassicWorld) -> None:
    topic_id = world.topics.by_name["t"].topic_id
    world.commit({1: 42}, metadata="m")
    world.commit({2: 43}, retention_ms=1000, version=2)
    assert [key for key, _ in world.driver.records()] == [
        OffsetCommitKey(group=GROUP, topic="t", partition=index) for index in (1, 2)
    ]
    plain, expiring = [logged.value for logged in world.driver.log]
    assert plain is not None
    assert expiring is not None
    assert plain[:2] == (4).to_bytes(2, "big")
    assert topic_id in plain
    assert expiring[:2] == (1).to_bytes(2, "big")
    [_, (_, value)] = world.driver.records()
    assert isinstance(value, OffsetCommitValue)
    assert value.expire_timestamp == world.driver.now_ms + 1000


def test_offsets_of_old_brokers_are_read(world: ClassicWorld) -> None:
    key = GROUP_RECORDS.encode_key(LegacyOffsetCommitKey(group=GROUP, topic="t", partition=2))
    value = LegacyOffsetCommitValue(offset=9, metadata="", commit_timestamp=1)
    world.driver.log.append(Logged(key, GROUP_RECORDS.encode_value(value, 0), -1))
    world.driver.crash()
    assert world.offsets() == {2: 9}


# Reading


def test_what_was_not_committed_reads_as_no_offset(world: ClassicWorld) -> None:
    assert world.fetch([0, 99], topic="nowhere") == {0: (-1, ErrorCode.NONE), 99: (-1, ErrorCode.NONE)}
    world.commit({0: 5})
    assert world.fetch([0, 1]) == {0: (5, ErrorCode.NONE), 1: (-1, ErrorCode.NONE)}


def test_a_topic_that_was_made_again_has_no_offsets(world: ClassicWorld) -> None:
    world.commit({0: 5})
    world.topics.remove("t")
    world.topics.add("other", 1)
    world.topics.add("t", 4)
    assert world.fetch([0]) == {0: (-1, ErrorCode.NONE)}
    world.commit({1: 1})
    world.driver.run(lambda machine, operation: machine.topics_changed(operation, {"t", "other"}))
    assert world.offsets() == {1: 1}


def test_offsets_go_with_their_topic(world: ClassicWorld) -> None:
    world.topics.add("other", 1)
    world.commit({0: 5})
    world.commit({0: 6}, topic="other")
    world.topics.remove("t")
    world.driver.run(lambda machine, operation: machine.topics_changed(operation, {"t"}))
    assert world.fetch(None) == {0: (6, ErrorCode.NONE)}
    world.driver.crash()
    assert world.fetch(None) == {0: (6, ErrorCode.NONE)}


def test_offsets_of_a_topic_that_went_while_nobody_was_there(world: ClassicWorld) -> None:
    world.topics.add("other", 1)
    world.commit({0: 5})
    world.commit({0: 6}, topic="other")
    world.commit({1: 7}, producer=PRODUCER)
    world.topics.remove("t")
    world.driver.crash()  # before it heard of that
    world.driver.advance(600_000)
    assert world.fetch(None) == {0: (6, ErrorCode.NONE)}
    gone = [key for key, value in world.driver.records() if value is None]
    assert gone == [OffsetCommitKey(group=GROUP, topic="t", partition=index) for index in (0, 1)]


def test_offsets_in_a_transaction_go_with_their_topic(world: ClassicWorld) -> None:
    world.commit({0: 5}, producer=PRODUCER)
    world.topics.remove("t")
    world.driver.run(lambda machine, operation: machine.topics_changed(operation, {"t"}))
    world.driver.append_marker(PRODUCER[0], is_commit=True)
    assert world.fetch(None) == {}


def test_an_offset_of_the_topic_that_was_made_again_outlives_one_of_the_old_in_a_transaction(
    world: ClassicWorld,
) -> None:
    world.commit({0: 5}, producer=PRODUCER)
    world.topics.remove("t")
    world.topics.add("t", 4)
    world.commit({0: 1})
    world.driver.run(lambda machine, operation: machine.topics_changed(operation, {"t"}))
    assert world.offsets() == {0: 1}
    world.driver.append_marker(PRODUCER[0], is_commit=True)
    assert world.offsets() == {0: 1}


class CountedMapping(dict[str, Any]):
    """Counts how often somebody looks a topic up: once for each offset that is looked at."""

    lookups = 0

    def get(self, *arguments: Any) -> Any:
        self.lookups += 1
        return super().get(*arguments)


def test_offsets_of_very_many_groups_go_with_their_topic_in_slices(world: ClassicWorld) -> None:
    for number in range(300):
        world.commit(dict.fromkeys(range(4), 1), group_id=f"group {number}")
    world.topics.remove("t")
    machine = world.driver.machine
    operation = Operation(machine, world.driver.now_ms)
    machine.topics_changed(operation, {"t"})
    removed = []
    for event in itertools.chain.from_iterable(operation.work):
        step = Operation(machine, world.driver.now_ms)
        event(step)
        removed.append(len(step.records))
    assert not operation.records
    assert sum(removed) == 1200
    assert max(removed) <= LOOKED_AT_ONCE
    assert not machine.offsets.groups()


def test_a_new_topic_costs_nothing_where_others_have_many_offsets(world: ClassicWorld) -> None:
    for number in range(50):
        world.commit(dict.fromkeys(range(4), 1), group_id=f"group {number}")
    world.topics.add("other", 1)
    world.commit({0: 1}, topic="other", group_id="group 7")
    world.topics.by_name = topics = CountedMapping(world.topics.by_name)
    world.driver.run(lambda machine, operation: machine.topics_changed(operation, {"new"}))
    assert topics.lookups == 0
    world.driver.run(lambda machine, operation: machine.topics_changed(operation, {"other"}))
    assert topics.lookups == 1


def test_old_offsets_are_looked_for_in_slices(world: ClassicWorld) -> None:
    count = 3 * LOOKED_AT_ONCE
    world.topics.add("large", count)
    world.commit(dict.fromkeys(range(count), 1), topic="large")
    world.driver.now_ms += 8 * 24 * 3600 * 1000
    machine = world.driver.machine
    operation = Operation(machine, world.driver.now_ms)
    machine.expired(operation, (EXPIRY,))
    assert not operation.records
    removed = []
    for event in itertools.chain.from_iterable(operation.work):
        step = Operation(machine, world.driver.now_ms)
        event(step)
        removed.append(len([record for record in step.records if isinstance(record.key, OffsetCommitKey)]))
    assert sum(removed) == count
    assert max(removed) == LOOKED_AT_ONCE
    assert not machine.groups


# Transactions


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("crashes", [True, False])
def test_a_transaction_shows_its_offsets_all_at_once_or_not_at_all(
    world: ClassicWorld, is_commit: bool, crashes: bool
) -> None:
    world.commit({0: 1, 1: 1})
    assert world.commit({0: 5, 2: 6}, producer=PRODUCER) == [ErrorCode.NONE] * 2
    if crashes:
        world.driver.crash()
    assert world.offsets() == {0: 1, 1: 1}
    unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert world.fetch(range(3), require_stable=True) == {0: unstable, 1: (1, ErrorCode.NONE), 2: unstable}
    world.driver.append_marker(PRODUCER[0], is_commit=is_commit)
    expected = {0: 5, 1: 1, 2: 6} if is_commit else {0: 1, 1: 1}
    assert world.offsets() == expected
    assert world.fetch([0], require_stable=True)[0][1] is ErrorCode.NONE
    world.driver.crash()
    assert world.offsets() == expected


def test_a_commit_after_that_of_a_transaction_counts_even_if_the_transaction_ends_later(world: ClassicWorld) -> None:
    world.commit({0: 5}, producer=PRODUCER)
    world.commit({0: 9})
    world.driver.append_marker(PRODUCER[0], is_commit=True)
    assert world.offsets() == {0: 9}


def test_a_transaction_has_room_for_so_many_offsets(world: ClassicWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.coordinator.offsets.commit.MOST_PENDING", 3)
    assert world.commit({0: 1, 1: 1}, producer=PRODUCER) == [ErrorCode.NONE] * 2
    assert world.commit({1: 2}, producer=PRODUCER, group_id="other") == [ErrorCode.NONE]
    assert world.commit({0: 2, 1: 2}, producer=PRODUCER) == [ErrorCode.NONE] * 2, "these do not count twice"
    assert world.commit({1: 3, 2: 3}, producer=PRODUCER) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert world.commit({2: 3}, producer=(8, 0)) == [ErrorCode.NONE], "of another transaction"
    world.driver.append_marker(PRODUCER[0], is_commit=True)
    assert world.offsets() == {0: 2, 1: 2}
    assert world.commit({1: 3, 2: 3}, producer=PRODUCER) == [ErrorCode.NONE] * 2


def test_of_two_transactions_the_one_that_wrote_later_counts(world: ClassicWorld) -> None:
    world.commit({0: 5}, producer=(1, 0))
    world.commit({0: 6}, producer=(2, 0))
    world.driver.append_marker(2, is_commit=True)
    world.driver.append_marker(1, is_commit=True)
    assert world.offsets() == {0: 6}


def test_members_are_checked_in_transactions_too_unless_they_are_not_named(world: ClassicWorld) -> None:
    [member] = world.stable(1)
    transaction: dict[str, Any] = {"producer": PRODUCER}
    assert world.commit({0: 1}, **transaction) == [ErrorCode.NONE]
    assert world.commit({0: 1}, member_id=member, epoch=1, **transaction) == [ErrorCode.NONE]
    assert world.commit({0: 1}, member_id=member, epoch=0, **transaction) == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit({0: 1}, member_id="stranger", epoch=1, **transaction) == [ErrorCode.UNKNOWN_MEMBER_ID]


# Deleting


def test_offsets_that_are_read_by_members_are_not_deleted(world: ClassicWorld) -> None:
    world.topics.add("other", 1)
    world.commit({0: 1})
    world.commit({0: 1}, topic="other")
    world.stable(1)
    asked = world.driver.ask(
        lambda machine, operation, reply: operation.answer(
            reply,
            machine.removal.delete_offsets(operation, machine.groups[GROUP], [("t", 0), ("other", 0), ("other", 9)]),
        )
    )
    assert asked.response == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE]
    assert world.driver.machine.offsets.of_group(GROUP).keys() == {("t", 0)}


def test_only_an_empty_group_is_deleted_and_nothing_of_it_stays(world: ClassicWorld) -> None:
    [member] = world.stable(1)
    world.commit({0: 1}, member_id=member, epoch=1)
    world.commit({1: 1}, producer=PRODUCER)
    assert delete(world) is ErrorCode.NON_EMPTY_GROUP
    world.leave((member, None))
    assert delete(world) is ErrorCode.NONE
    assert delete(world) is ErrorCode.GROUP_ID_NOT_FOUND
    world.driver.append_marker(PRODUCER[0], is_commit=True)
    assert world.offsets() == {}
    world.driver.crash()
    assert world.offsets() == {}
    assert GROUP not in world.driver.machine.groups


# Age


def test_offsets_of_nobodys_group_age_from_their_commit_and_the_group_goes_with_the_last(
    forgetful: ClassicWorld,
) -> None:
    world = forgetful
    world.commit({0: 1})
    world.driver.advance(RETENTION_MS // 2)
    world.commit({1: 1})
    world.driver.advance(RETENTION_MS // 2 + 1000)
    assert world.offsets() == {1: 1}
    world.driver.advance(RETENTION_MS // 2)
    assert GROUP not in world.driver.machine.groups
    world.driver.crash()
    assert GROUP not in world.driver.machine.groups


def test_offsets_of_a_group_age_from_the_time_it_became_empty(forgetful: ClassicWorld) -> None:
    world = forgetful
    [member] = world.stable(1, session_ms=DAY_MS // 60)
    world.commit({0: 1}, member_id=member, epoch=1)
    world.driver.advance(5 * RETENTION_MS)
    assert world.offsets() == {0: 1}
    world.leave((member, None))
    world.driver.crash()
    world.driver.advance(RETENTION_MS - 1)
    assert world.offsets() == {0: 1}
    world.driver.advance(1000)
    assert world.offsets() == {}
    assert GROUP not in world.driver.machine.groups


def test_offsets_of_topics_that_a_group_at_work_no_longer_reads_age(forgetful: ClassicWorld) -> None:
    world = forgetful
    world.topics.add("old", 1)
    world.commit({0: 1}, topic="old")
    [member] = world.stable(1, session_ms=DAY_MS // 60)
    world.commit({0: 1}, member_id=member, epoch=1)
    world.driver.advance(RETENTION_MS + 1000)
    assert world.driver.machine.offsets.of_group(GROUP).keys() == {("t", 0)}


def test_an_old_client_says_how_long_its_offsets_stay(forgetful: ClassicWorld) -> None:
    world = forgetful
    world.commit({0: 1}, retention_ms=5 * RETENTION_MS, version=2)
    world.commit({1: 1}, retention_ms=1000, version=2)
    world.driver.advance(2000)
    assert world.offsets() == {0: 1}
    world.driver.advance(4 * RETENTION_MS)
    assert world.offsets() == {0: 1}


def test_what_a_transaction_may_still_replace_does_not_age(forgetful: ClassicWorld) -> None:
    world = forgetful
    world.commit({0: 1})
    world.commit({0: 2}, producer=PRODUCER)
    world.driver.advance(2 * RETENTION_MS)
    assert world.offsets() == {0: 1}
    world.driver.append_marker(PRODUCER[0], is_commit=False)
    world.driver.advance(1000)
    assert world.offsets() == {}


def test_very_many_old_offsets_go_in_slices() -> None:
    world = ClassicWorld(offsets_retention_ms=1000, offsets_retention_check_interval_ms=5000)
    for number in range(1500):
        world.commit({0: 1}, group_id=f"group {number}")
    written: list[int] = []
    original = Operation.write

    def counted(operation: Operation, *record: Any) -> None:
        original(operation, *record)
        written.append(id(operation))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Operation, "write", counted)
        world.driver.advance(5000)
    assert not world.driver.machine.groups
    assert len(written) == 3000
    tombstones = [key for key, value in world.driver.records() if value is None]
    assert sum(isinstance(key, GroupMetadataKey) for key in tombstones) == 1500


# The store of offsets against a plain model


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.sampled_from("ab"), st.integers(0, 2), st.sampled_from([-1, -1, 1, 2])),
            st.tuples(st.just("remove"), st.sampled_from("ab"), st.integers(0, 2), st.just(0)),
            st.tuples(st.just("end"), st.just(""), st.integers(0, 1), st.sampled_from([1, 2])),
        ),
        max_size=40,
    )
)
def test_offsets_are_those_last_written_by_what_has_committed(steps: list[tuple[str, str, int, int]]) -> None:
    offsets = Offsets()
    history: list[tuple[int, str, int, int]] = []  # producer (-1: committed), group, partition, offset
    for number, (step, group, index, producer) in enumerate(steps):
        if step == "put":
            value = OffsetCommitValue(offset=number, metadata="", commit_timestamp=0)
            offsets.put(group, ("t", index), value, producer)
            history.append((producer, group, index, number))
        elif step == "remove":
            offsets.remove(group, ("t", index))
            history = [entry for entry in history if entry[1:3] != (group, index)]
        else:
            offsets.end_transaction(producer, bool(index))
            history = [
                (-1 if entry[0] == producer else entry[0], *entry[1:])
                for entry in history
                if index or entry[0] != producer
            ]
        for name in "ab":
            expected = {("t", entry[2]): entry[3] for entry in history if entry[0] == -1 and entry[1] == name}
            assert {key: found.value.offset for key, found in offsets.of_group(name).items()} == expected
            waiting = {("t", entry[2]) for entry in history if entry[0] != -1 and entry[1] == name}
            assert set(offsets.pending(name)) == waiting
            assert {key for key in [("t", 0), ("t", 1), ("t", 2)] if offsets.is_pending(name, key)} == waiting
            assert offsets.has_pending(name) == bool(waiting)
