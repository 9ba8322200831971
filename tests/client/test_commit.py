"""One commit of offsets, without I/O: what each code means, and what is another's by now."""

from __future__ import annotations

import pytest

from ottla.client import CommitFailed, ServerError, TopicPartition
from ottla.client.consumer.partition_position import PartitionPosition
from ottla.client.group.commit import Commit, CommitVerdict, judge
from ottla.client.group.offsets import Membership, Offset
from ottla.wire.errors import ErrorCode

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = Membership("g", 1, "me"), Membership("g", 2, "me")


def begun(*partitions: TopicPartition) -> tuple[Commit, dict[TopicPartition, PartitionPosition]]:
    positions = {one: PartitionPosition(one) for one in partitions}
    return Commit("g", dict.fromkeys(partitions, Offset(5)), positions), positions


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NONE, CommitVerdict.DONE),
        (ErrorCode.REBALANCE_IN_PROGRESS, CommitVerdict.AGAIN),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, CommitVerdict.AGAIN),
        (ErrorCode.NOT_COORDINATOR, CommitVerdict.AGAIN),
        (ErrorCode.ILLEGAL_GENERATION, CommitVerdict.STALE),
        (ErrorCode.STALE_MEMBER_EPOCH, CommitVerdict.STALE),
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitVerdict.LOST),
        (ErrorCode.FENCED_INSTANCE_ID, CommitVerdict.LOST),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, CommitVerdict.REFUSED),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, CommitVerdict.REFUSED),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, CommitVerdict.REFUSED),
        (30_000, CommitVerdict.REFUSED),
    ],
)
def test_what_a_code_means(code: int, verdict: CommitVerdict) -> None:
    assert judge(code) is verdict


def test_what_is_done_is_known_and_not_sent_again() -> None:
    commit, positions = begun(ONE, TWO)
    commit.answered({ONE: 0, TWO: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}, OLD, OLD, is_rejoining=False)
    assert commit.to_send(positions) == {TWO: Offset(5)}
    assert (positions[ONE].committed, positions[TWO].committed) == (5, -1)
    assert commit.trouble is not None
    commit.answered({TWO: 0}, OLD, OLD, is_rejoining=False)
    assert (commit.to_send(positions), positions[TWO].committed, commit.error) == ({}, 5, None)


def test_a_row_that_is_left_out_is_not_done() -> None:
    commit, positions = begun(ONE)
    commit.answered({}, OLD, OLD, is_rejoining=False)
    assert commit.to_send(positions) == {}
    assert isinstance(commit.error, ServerError)
    assert positions[ONE].committed == -1


@pytest.mark.parametrize(
    ("code", "present", "is_rejoining", "is_lost"),
    [
        (ErrorCode.ILLEGAL_GENERATION, OLD, False, True),
        (ErrorCode.ILLEGAL_GENERATION, OLD, True, False),
        (ErrorCode.ILLEGAL_GENERATION, NEW, False, False),
        (ErrorCode.ILLEGAL_GENERATION, Membership("g", 2, "another"), False, True),
        (ErrorCode.STALE_MEMBER_EPOCH, OLD, False, False),
    ],
)
def test_an_old_generation_is_lost_only_where_the_member_has_not_joined_the_new_one(
    code: ErrorCode, present: Membership, is_rejoining: bool, is_lost: bool
) -> None:
    commit, positions = begun(ONE)
    commit.answered({ONE: code}, OLD, present, is_rejoining=is_rejoining)
    assert isinstance(commit.error, CommitFailed) is is_lost
    assert bool(commit.to_send(positions)) is not is_lost


@pytest.mark.parametrize("is_back", [False, True])
def test_what_was_given_away_is_not_committed_even_if_it_is_back(is_back: bool) -> None:
    commit, positions = begun(ONE, TWO)
    del positions[ONE]
    if is_back:
        positions[ONE] = PartitionPosition(ONE)
    assert commit.to_send(positions) == {TWO: Offset(5)}
    assert isinstance(commit.error, CommitFailed)


def test_that_partitions_are_lost_comes_before_other_errors() -> None:
    commit, positions = begun(ONE, TWO)
    codes = {ONE: ErrorCode.GROUP_AUTHORIZATION_FAILED, TWO: ErrorCode.UNKNOWN_MEMBER_ID}
    commit.answered(codes, OLD, OLD, is_rejoining=False)
    assert commit.to_send(positions) == {}
    assert isinstance(commit.error, CommitFailed)


def test_offsets_of_others_may_be_committed_by_hand() -> None:
    commit = Commit("g", {ONE: Offset(5)}, {})
    assert commit.to_send({}) == {ONE: Offset(5)}
    commit.answered({ONE: 0}, OLD, OLD, is_rejoining=False)
    assert (commit.to_send({}), commit.error) == ({}, None)
