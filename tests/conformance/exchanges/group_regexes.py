"""Subscriptions by regular expression."""

from __future__ import annotations

from typing import Any

from tests.conformance.consumers import eager_group, known_topic
from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import beat, describe_consumer_groups, enter
from tests.conformance.script import Script

exchanges = Exchanges("group_regexes")


def enter_by(group: str, member: str, regex: str | None, *names: str, **options: Any) -> Any:
    topics: dict[str, Any] = {"subscribed_topic_names": list(names) or None}
    return enter(group, member, subscribed_topic_regex=regex, **(topics | options))


def resolved(script: Script, group: str, member: str, regex: str, epoch: int) -> None:
    """The first answer with a later epoch; topics are looked for in the background."""
    script.settle(enter_by(group, member, regex), until=lambda answer: answer.member_epoch > epoch or answer.error_code)
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_member_joins_by_a_regex(script: Script) -> None:
    group, member = eager_group(script), script.name("member")
    known_topic(script, "one", partitions=2)
    known_topic(script, "another")
    regex = f"o.*-{script.token}"
    first = script.send(enter_by(group, member, regex))
    resolved(script, group, member, regex, first.member_epoch)


@exchanges.one
def a_regex_that_nothing_matches(script: Script) -> None:
    group, member = eager_group(script), script.name("member")
    script.send(enter_by(group, member, f"no-such-{script.token}"))
    script.send(beat(group, member, 1))


@exchanges.one
def a_regex_must_match_the_whole_name(script: Script) -> None:
    group, member = eager_group(script), script.name("member")
    known_topic(script, "one")
    known_topic(script, "one-more")
    regex = f"one-{script.token}"
    first = script.ask(enter_by(group, member, regex))
    resolved(script, group, member, regex, first.member_epoch)


@exchanges.one
def names_and_a_regex(script: Script) -> None:
    group, member = eager_group(script), script.name("member")
    named = known_topic(script, "named")
    known_topic(script, "matched")
    regex = f"match.*-{script.token}"
    first = script.send(enter_by(group, member, regex, named.name))
    script.settle(
        enter_by(group, member, regex, named.name), until=lambda answer: answer.member_epoch > first.member_epoch
    )
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_second_member_with_a_resolved_regex(script: Script) -> None:
    group, member = eager_group(script), script.name("member")
    known_topic(script, "one", partitions=2)
    regex = f"o.*-{script.token}"
    first = script.ask(enter_by(group, member, regex))
    script.ask_until(enter_by(group, member, regex), until=lambda answer: answer.member_epoch > first.member_epoch)
    script.send(enter_by(group, script.name("second"), regex))
    script.send(describe_consumer_groups(group))


@exchanges.one
def from_a_regex_to_names(script: Script) -> None:
    group, member = eager_group(script), script.name("member")
    topic = known_topic(script, "one", partitions=2)
    regex = f"o.*-{script.token}"
    first = script.ask(enter_by(group, member, regex))
    script.ask_until(enter_by(group, member, regex), until=lambda answer: answer.member_epoch > first.member_epoch)
    script.send(enter(group, member, topic.name, subscribed_topic_regex=""))
    script.send(describe_consumer_groups(group))


BAD = {
    "a bracket too few": "(one",
    "a bracket too many": "one)",
    "a star alone": "*",
    "a look ahead": "(?=one).*",
    "a look behind": "(?<=one).*",
    "a back reference": r"(o)\1",
    "an open class": "[a-",
    "a repetition too large": "a{2000}",
    "a backslash at the end": "one\\",
    "a class backwards": "[z-a]",
}


@exchanges.cases(BAD)
def a_regex_that_is_refused(script: Script, regex: str) -> None:
    group = script.group()
    script.send(enter_by(group, script.name("member"), regex))
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_later_beat_with_a_bad_regex(script: Script) -> None:
    group, topic, member = script.group(), known_topic(script), script.name("member")
    epoch = script.ask(enter(group, member, topic.name)).member_epoch
    script.send(beat(group, member, epoch, subscribed_topic_regex="("))
    script.send(beat(group, member, epoch))


GOOD = {
    "anchors": "^one-{token}$",
    "an alternative": "(one|two)-{token}",
    "a class": "[[:alpha:]]+-{token}",
    "a flag": "(?i)ONE-{token}",
    "a lazy star": "o.*?-{token}",
    "a named group": "(?P<x>one)-{token}",
    "a class of Unicode": r"\p{{L}}+-{token}",
    "a word boundary": r"\bone\b.{token}",
    "a literal": r"\Qone-\E{token}",
}


@exchanges.cases(GOOD)
def a_regex_with(script: Script, regex: str) -> None:
    group, member = eager_group(script), script.name("member")
    known_topic(script, "one")
    regex = regex.format(token=script.token)
    first = script.ask(enter_by(group, member, regex))
    resolved(script, group, member, regex, first.member_epoch)
