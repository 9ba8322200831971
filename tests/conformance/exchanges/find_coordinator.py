"""FindCoordinator: of groups and of transactions."""

from __future__ import annotations

from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import (
    GROUP_KEY,
    SHARE_KEY,
    TRANSACTION_KEY,
    find_coordinator,
    find_coordinators,
)
from tests.conformance.script import Script

exchanges = Exchanges("find_coordinator")

KINDS = {"a group": GROUP_KEY, "a transaction": TRANSACTION_KEY}


def ready(script: Script) -> None:
    script.group()
    script.transactional_id()


@exchanges.versions(range(4))
def of_a_group(script: Script, version: int) -> None:
    script.send(find_coordinator(script.group()), version)


@exchanges.versions(range(1, 4))
def of_a_transaction(script: Script, version: int) -> None:
    script.send(find_coordinator(script.transactional_id(), TRANSACTION_KEY), version)


@exchanges.versions((4, 5, 6))
def of_several_groups(script: Script, version: int) -> None:
    script.send(find_coordinators(script.group("one"), script.group("two"), script.group("three")), version)


@exchanges.versions((4, 5, 6))
def of_several_transactions(script: Script, version: int) -> None:
    keys = [script.transactional_id("one"), script.transactional_id("two")]
    script.send(find_coordinators(*keys, key_type=TRANSACTION_KEY), version)


@exchanges.cases(KINDS)
def of_no_name(script: Script, key_type: int) -> None:
    ready(script)
    script.send(find_coordinator("", key_type), 3)
    script.send(find_coordinators("", key_type=key_type), 6)


@exchanges.cases(KINDS)
def of_nobody(script: Script, key_type: int) -> None:
    ready(script)
    script.send(find_coordinators(key_type=key_type), 4)
    script.send(find_coordinators(key_type=key_type), 6)


@exchanges.one
def the_same_key_twice(script: Script) -> None:
    group = script.group()
    script.send(find_coordinators(group, script.group("another"), group))


@exchanges.cases({"3": 3, "5": 5, "127": 127, "-1": -1, "-128": -128})
def an_unknown_type(script: Script, key_type: int) -> None:
    ready(script)
    script.send(find_coordinator("key", key_type), 1)
    script.send(find_coordinator("key", key_type), 3)
    script.send(find_coordinators("key", "other", key_type=key_type), 4)
    script.send(find_coordinators("key", key_type=key_type), 6)


@exchanges.versions((1, 3))
def a_share_before_it_was_known(script: Script, version: int) -> None:
    ready(script)
    script.send(find_coordinator("group:AAAAAAAAAAAAAAAAAAAAAQ:0", SHARE_KEY), version)


@exchanges.versions((4, 5))
def a_share_in_a_list_before_it_was_known(script: Script, version: int) -> None:
    ready(script)
    script.send(find_coordinators("group:AAAAAAAAAAAAAAAAAAAAAQ:0", key_type=SHARE_KEY), version)


@exchanges.cases({"a word": "group", "two parts": "group:0", "a partition that is none": "group:AAAA:x"})
def a_share_that_is_none(script: Script, key: str) -> None:
    ready(script)
    script.send(find_coordinators(key, key_type=SHARE_KEY), 6)
