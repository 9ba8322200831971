"""Admin calls that take several names: a list is one, and a text is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.client import Admin
from ottla.testing import LocalBroker

CALLS: dict[str, Callable[[Admin, object], object]] = {
    "describe_topics": lambda admin, names: admin.describe_topics(names),  # type: ignore[arg-type]
    "delete_topics": lambda admin, names: admin.delete_topics(names),  # type: ignore[arg-type]
    "describe_growths": lambda admin, names: admin.describe_growths(names),  # type: ignore[arg-type]
    "describe_groups": lambda admin, names: admin.describe_groups(names),  # type: ignore[arg-type]
    "delete_groups": lambda admin, names: admin.delete_groups(names),  # type: ignore[arg-type]
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
