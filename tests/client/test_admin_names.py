"""Admin calls that take several names: a list is one, and a text is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.client import Admin, ConfigChange, ConfigOperation, NewTopic, Resource, ResourceKind
from ottla.testing import LocalBroker

TOPIC = Resource(ResourceKind.TOPIC, "a")
CALLS: dict[str, Callable[[Admin, object], object]] = {
    "describe_topics": lambda admin, names: admin.describe_topics(names),  # type: ignore[arg-type]
    "delete_topics": lambda admin, names: admin.delete_topics(names),  # type: ignore[arg-type]
    "describe_growths": lambda admin, names: admin.describe_growths(names),  # type: ignore[arg-type]
    "describe_groups": lambda admin, names: admin.describe_groups(names),  # type: ignore[arg-type]
    "delete_groups": lambda admin, names: admin.delete_groups(names),  # type: ignore[arg-type]
    "list_groups, states": lambda admin, names: admin.list_groups(states=names),  # type: ignore[arg-type]
    "list_groups, types": lambda admin, names: admin.list_groups(types=names),  # type: ignore[arg-type]
    "list_transactions": lambda admin, names: admin.list_transactions(states=names),  # type: ignore[arg-type]
    "describe_configs": lambda admin, names: admin.describe_configs([TOPIC], names),  # type: ignore[arg-type]
    "describe_quotas": lambda admin, names: admin.describe_quotas(any_of=names),  # type: ignore[arg-type]
    "fence_producers": lambda admin, names: admin.fence_producers(names),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", CALLS)
def test_a_text_is_no_list_of_names(name: str, ottla: LocalBroker) -> None:
    ottla.topic("a")
    with Admin(ottla.bootstrap) as admin:
        with pytest.raises(TypeError, match=r"list of names, not 'a'; for one: \['a'\]"):
            CALLS[name](admin, "a")
        with pytest.raises(TypeError, match="is a str, not 7"):
            CALLS[name](admin, ["a", 7])
    assert ottla.values("a") == []  # it is still there


def test_names_may_come_one_by_one(ottla: LocalBroker) -> None:
    ottla.topic("a")
    ottla.topic("b")
    with Admin(ottla.bootstrap) as admin:
        assert [topic.name for topic in admin.describe_topics(name for name in "ab")] == ["a", "b"]  # type: ignore[arg-type]
        assert admin.delete_topics(name for name in "ab") == ["a", "b"]  # type: ignore[arg-type]


CROOKED: dict[str, tuple[Callable[[Admin], object], str]] = {
    "one topic": (
        lambda admin: admin.create_topics(NewTopic("b")),  # type: ignore[arg-type]
        "topics are a list of NewTopic, not NewTopic",
    ),
    "names": (lambda admin: admin.create_topics(["b"]), "each of topics is a NewTopic, not 'b'"),  # type: ignore[list-item]
    "a count as text": (
        lambda admin: admin.create_topics([NewTopic("b", "3")]),  # type: ignore[arg-type]
        "partition_count is an int, not '3'",
    ),
    "too many": (lambda admin: admin.create_topics([NewTopic("b", 2**31)]), "partition_count is at most 2,147,483,647"),
    "pairs": (
        lambda admin: admin.create_topics([NewTopic("b", configs=[("retention.ms", "1")])]),  # type: ignore[arg-type]
        "configs are a dict by name",
    ),
    "a list in a config": (
        lambda admin: admin.create_topics([NewTopic("b", configs={"cleanup.policy": ["compact"]})]),  # type: ignore[dict-item]
        "the value of cleanup.policy is a str, not",
    ),
    "more, as text": (
        lambda admin: admin.expand_topics({"a": "3"}),  # type: ignore[dict-item]
        "the number of partitions of a is an int, not '3'",
    ),
    "one resource": (
        lambda admin: admin.describe_configs(TOPIC),  # type: ignore[arg-type]
        "resources are a list of Resource, not",
    ),
    "changes as a dict": (
        lambda admin: admin.alter_configs(TOPIC, {"retention.ms": "1"}),  # type: ignore[dict-item]
        "each of changes is a ConfigChange, not 'retention.ms'",
    ),
}


@pytest.mark.parametrize("name", CROOKED)
def test_what_cannot_be_asked_for_is_told_in_plain_words(name: str, ottla: LocalBroker) -> None:
    ottla.topic("a")
    call, reason = CROOKED[name]
    with Admin(ottla.bootstrap) as admin:
        with pytest.raises((TypeError, ValueError), match=reason):
            call(admin)
        assert [topic.name for topic in admin.list_topics()] == ["a"]


def test_numbers_and_booleans_are_values_of_configurations(ottla: LocalBroker) -> None:
    with Admin(ottla.bootstrap) as admin:
        admin.create_topics([NewTopic("a", 1, configs={"retention.ms": 1000, "preallocate": True})])
        admin.alter_configs(TOPIC, [ConfigChange("segment.bytes", ConfigOperation.SET, 2**20)])
        [found] = admin.describe_configs([TOPIC], ["retention.ms", "preallocate", "segment.bytes"])
    assert {entry.name: entry.value for entry in found.entries} == {
        "retention.ms": "1000", "preallocate": "true", "segment.bytes": "1048576",
    }  # fmt: skip
