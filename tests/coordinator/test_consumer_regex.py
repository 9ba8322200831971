"""Subscriptions by regular expression."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from ottla.coordinator.consumer import subscriptions
from ottla.coordinator.consumer.records import write_member
from ottla.coordinator.consumer.regex import MOST_CHARACTERS, compile_regex
from ottla.coordinator.consumer.subscriptions import COMPARED_AT_ONCE, LEAST_INTERVAL_MS
from ottla.wire.errors import ApiError, ErrorCode
from tests.coordinator.consumer_members import FakeMember, World, settle


@pytest.fixture
def world() -> World:
    world = World()
    for name in ("logs-1", "logs-2", "other"):
        world.add_topic(name, 1)
    return world


def by_regex(world: World, member_id: str, regex: str = "logs-.*") -> FakeMember:
    return FakeMember(world, member_id, None, subscribed_topic_regex=regex)


def names(member: FakeMember) -> list[str]:
    return sorted(member.world.topics.by_id[topic_id].name for topic_id in member.owned)


def test_what_matches_comes_with_the_heartbeat_after_the_scan(world: World) -> None:
    a = by_regex(world, "a")
    assert a.join().member_epoch == 1
    assert names(a) == []
    world.driver.advance(0)
    assert a.beat().member_epoch == 2
    assert names(a) == ["logs-1", "logs-2"]


def test_names_and_an_expression_are_a_union(world: World) -> None:
    a = by_regex(world, "a")
    a.join(subscribed_topic_names=["other"])
    assert names(a) == ["other"]
    world.driver.advance(0)
    a.beat()
    assert names(a) == ["logs-1", "logs-2", "other"]


def test_a_known_expression_is_not_resolved_again(world: World) -> None:
    a, b = by_regex(world, "a"), by_regex(world, "b")
    a.join()
    world.driver.advance(0)
    a.beat()
    assert b.join().member_epoch == 3
    settle(a, b)
    assert sorted([names(a), names(b)]) == [["logs-1"], ["logs-2"]]


def test_topics_that_come_later_are_found_but_not_more_often_than_every_ten_seconds(world: World) -> None:
    a = by_regex(world, "a")
    a.join()
    world.driver.advance(0)
    a.beat()
    world.add_topic("logs-3", 1)
    a.beat()
    world.driver.advance(10_000)
    a.beat()
    assert names(a) == ["logs-1", "logs-2"]
    world.driver.advance(1)
    a.beat()
    world.driver.advance(0)
    a.beat()
    assert names(a) == ["logs-1", "logs-2", "logs-3"]


def test_without_new_topics_expressions_are_resolved_only_now_and_then(world: World) -> None:
    a = by_regex(world, "a")
    a.join()
    world.driver.advance(0)
    for _ in range(60):
        world.driver.advance(10_000)
        a.beat()
        world.driver.advance(0)
    world.record_types()
    a.beat()
    world.driver.advance(10_000)
    a.beat()
    world.driver.advance(0)
    assert world.record_types() == ["ConsumerGroupRegularExpression"], "ten minutes have passed"


def test_how_often_is_a_setting(world: World) -> None:
    world.settings = dataclasses.replace(world.settings, regex_refresh_interval_ms=20_000)
    a = by_regex(world, "a")
    a.join()
    world.driver.advance(0)
    a.beat()
    world.record_types()
    for passed_ms, written in ((20_000, []), (1, ["ConsumerGroupRegularExpression"])):
        world.driver.advance(passed_ms)
        a.beat()
        world.driver.advance(0)
        assert world.record_types() == written


def test_many_expressions_are_resolved_in_slices(world: World) -> None:
    for number in range(4000):
        world.topics.add(f"many-{number}", 1)
    members = [by_regex(world, f"m{number}", f"many-{number}|other") for number in range(10)]
    for member in members:
        member.join()
    world.driver.holds_work = True
    world.driver.advance(0)
    world.driver.do_work(3 * 4000 // COMPARED_AT_ONCE)
    assert world.group.subscriptions.is_resolving
    assert len(world.group.subscriptions.regexes) < len(members)  # each is kept when it is resolved
    members.pop(0).leave()  # whoever goes or comes meanwhile does no harm
    members.append(by_regex(world, "late"))
    members[-1].join()
    world.driver.holds_work = False
    world.driver.do_work()
    settle(*members)
    assert set(world.group.subscriptions.regexes) == {member.fields["subscribed_topic_regex"] for member in members}
    assert sum(len(names(member)) for member in members) == 9 + len(["other", "logs-1", "logs-2"])


def test_a_new_expression_takes_away_what_it_is_not_known_to_match(world: World) -> None:
    a = by_regex(world, "a")
    a.join()
    world.driver.advance(0)
    a.beat()
    world.driver.advance(11_000)
    response = a.beat(subscribed_topic_regex="oth.*")
    assert response.assignment is not None
    assert response.assignment.topic_partitions == []
    world.driver.advance(0)
    settle(a)
    assert names(a) == ["other"]
    assert set(world.group.subscriptions.regexes) == {"oth.*"}


def test_an_expression_that_is_dropped_is_forgotten(world: World) -> None:
    a = by_regex(world, "a")
    a.join()
    world.driver.advance(0)
    a.beat()
    a.beat(subscribed_topic_regex="", subscribed_topic_names=["other"])
    settle(a)
    assert names(a) == ["other"]
    assert world.group.subscriptions.regexes == {}
    a.beat(subscribed_topic_regex="logs-.*")
    world.driver.advance(0)
    a.leave()
    assert world.group.subscriptions.regexes == {}


def test_what_is_no_expression_is_refused_before_anything_is_written(world: World) -> None:
    a = by_regex(world, "a", "(")
    response = a.join()
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert response.error_message == "SubscribedTopicRegex `(` is not a valid regular expression: missing closing )."
    assert world.driver.log == []


def test_an_expression_in_the_log_that_is_none_here_matches_nothing(world: World) -> None:
    """Apache Kafka may have written it, whose language is not the same to the last sign."""
    a = by_regex(world, "a")
    a.join(subscribed_topic_names=["other"])
    profile = world.group.members["a"].profile._replace(regex="(")
    world.driver.run(lambda _machine, operation: write_member(operation, world.group.group_id, "a", profile))
    world.driver.crash()
    a.beat(subscribed_topic_regex="(", subscribed_topic_names=["other"], topic_partitions=[])
    world.driver.advance(20_000)
    assert world.group.subscriptions.topic_names == {"other"}


def test_the_resolved_topics_survive_a_crash(world: World) -> None:
    a = by_regex(world, "a")
    a.join()
    world.driver.advance(0)
    a.beat()
    world.driver.crash()
    assert world.group.subscriptions.topic_names == {"logs-1", "logs-2"}
    assert a.beat().member_epoch == 2


@pytest.mark.parametrize("regex", [r"(a)\1", "(?=a)", "(?<=a)b", "(?!a)", "a++"])
def test_what_could_take_long_is_not_in_the_language(regex: str) -> None:
    with pytest.raises(ApiError) as caught:
        compile_regex(regex)
    assert caught.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_expression_that_would_make_others_backtrack_takes_no_time() -> None:
    matches = compile_regex("(a*)*b")
    assert not matches("a" * 249)


@pytest.mark.parametrize(("regex", "name", "is_match"), [("a.*", "ab", True), ("a", "ab", False), ("^a$", "a", True)])
def test_the_whole_name_must_match(regex: str, name: str, is_match: bool) -> None:
    assert compile_regex(regex)(name) is is_match


def test_a_broker_without_the_library_says_what_to_install(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    answer = by_regex(world, "a").join()
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.error_message is not None
    assert "ottla[broker]" in answer.error_message


def test_members_keep_what_an_expression_matched_where_the_library_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = by_regex(world, "a")
    a.join()
    world.driver.advance(0)
    a.beat()
    monkeypatch.setitem(sys.modules, "re2", None)
    world.driver.crash()
    world.driver.advance(LEAST_INTERVAL_MS + 1)
    world.add_topic("logs-3", 1)
    a.beat()
    assert world.group.subscriptions.is_resolving
    world.driver.advance(0)
    assert not world.group.subscriptions.is_resolving
    assert a.beat().error_code == 0
    assert world.group.subscriptions.topic_names == {"logs-1", "logs-2"}


# Expressions that are too much


@pytest.mark.parametrize(
    "regex",
    [
        "(a*)*" * 6000,  # one name took half a minute
        "a" * (MOST_CHARACTERS + 1),
        "(.?){1000}",
        "(?i)(\\pL\\pN){300}",
    ],
)
def test_an_expression_that_would_take_long_is_refused(world: World, regex: str) -> None:
    answer = by_regex(world, "a", regex).join()
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not world.driver.machine.groups


@pytest.mark.parametrize(
    "regex", ["(logs-(.)+)*|(x)", "|".join(f"logs-{number}" for number in range(90)), "[\\w.-]{1,249}"]
)
def test_expressions_of_a_usual_size(world: World, regex: str) -> None:
    assert compile_regex(regex)("logs-1")


def test_fewer_names_a_step_are_compared_with_a_large_expression() -> None:
    assert steps_of("(.?){300}") > 20 * steps_of("m.*")


def steps_of(regex: str) -> int:
    """In how many steps it is resolved for as many topics as a step has at most."""
    world = World()
    for number in range(COMPARED_AT_ONCE):
        world.topics.add(f"many-{number}", 1)
    world.driver.holds_work = True
    by_regex(world, "a", regex).join()
    world.driver.advance(0)
    for steps in range(COMPARED_AT_ONCE + 1):
        if regex in world.group.subscriptions.regexes:
            return steps
        world.driver.do_work(1)
    raise AssertionError("it is not resolved")


def test_an_expression_that_matches_too_much(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_TOPICS", 2)
    world.settings = dataclasses.replace(world.settings, regex_refresh_interval_ms=20_000)
    old, wide = by_regex(world, "old"), by_regex(world, "wide", ".*")
    for member in (old, wide):
        assert member.join().error_code == ErrorCode.NONE
    world.driver.advance(0)
    settle(old)
    assert names(old) == ["logs-1", "logs-2"]
    assert wide.beat().error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    wide.leave()
    world.add_topic("logs-3", 1)
    world.driver.advance(LEAST_INTERVAL_MS + 1)
    old.beat()
    world.driver.advance(0)
    settle(old)
    assert names(old) == ["logs-1", "logs-2"], "it goes on with what it has"
    refused = by_regex(world, "new").join()
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.error_message == "SubscribedTopicRegex `logs-.*` matches more than 2 topics."
    world.topics.remove("logs-1")
    world.change_topic("logs-1")
    world.driver.advance(20_001)
    old.beat()
    world.driver.advance(0)
    settle(old)
    assert names(old) == ["logs-2", "logs-3"]
    assert by_regex(world, "new").join().error_code == ErrorCode.NONE
