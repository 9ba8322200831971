"""Subscriptions by regular expression: RE2's language, in which no expression can take long.

Expressions are resolved for a whole group at once, soon after a heartbeat asks for it and never more often than
every ten seconds; members learn of what was found with their next heartbeat.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.coordinator.consumer_epoch import bump_if_changed
from ottla.coordinator.consumer_group import ConsumerGroup, Resolved
from ottla.coordinator.consumer_records import write_regex
from ottla.coordinator.consumer_timers import RESOLVE
from ottla.coordinator.group_refusal import GroupRefusal
from ottla.coordinator.operation import Operation
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine

LEAST_INTERVAL_MS = 10_000
MOST_MATCHER_BYTES = 8 << 20
COMPARED_AT_ONCE = 10_000
"""How many names are compared before others have their turn."""

# What RE2 says of an expression and its place, and what the one in Java says: clients know the latter.
_COMPLAINTS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "unexpected )": "regexp/syntax: internal error",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid perl operator: (?<=": "invalid named capture",
    "invalid perl operator: (?<!": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
}


class RegexChange(enum.Enum):
    """What a heartbeat did to the expression that a member subscribes by."""

    NONE = enum.auto()
    UNRESOLVED = enum.auto()  # what it matches is to be found out
    RESOLVED = enum.auto()  # what it matches is known, or it is gone


class RegexUnavailable(GroupRefusal):
    """RE2 is an optional dependency: who only wants the client does not install it."""

    def __init__(self) -> None:
        message = "This broker has no library for regular expressions: install ottla[broker] where it runs."
        super().__init__(ErrorCode.INVALID_REGULAR_EXPRESSION, message)


def compile_regex(regex: str) -> Callable[[str], bool]:
    """What tells whether a name matches as a whole; GroupRefusal if the expression is none."""
    try:
        import re2
    except ImportError as error:
        raise RegexUnavailable from error

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MOST_MATCHER_BYTES
    try:
        compiled = re2.compile(regex, options)
    except re2.error as error:
        raise _refusal(regex, error.args[0]) from error
    return lambda name: compiled.fullmatch(name) is not None


def _refusal(regex: str, complaint: bytes | str) -> GroupRefusal:
    text = complaint.decode("utf-8", "replace") if isinstance(complaint, bytes) else complaint
    what, _, _ = text.partition(": ")
    said = _COMPLAINTS.get(text) or _COMPLAINTS.get(what, what)
    message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {said}."
    return GroupRefusal(ErrorCode.INVALID_REGULAR_EXPRESSION, message)


def change_regex(operation: Operation, group: ConsumerGroup, before: str, after: str) -> RegexChange:
    """A member subscribes by another expression, as its record says already."""
    if before == after:
        return RegexChange.NONE
    drop_unused(operation, group, before)
    return RegexChange.RESOLVED if not after or after in group.regexes else RegexChange.UNRESOLVED


def drop_unused(operation: Operation, group: ConsumerGroup, regex: str) -> None:
    if regex in group.regexes and regex not in group.counts.regexes:
        write_regex(operation, group.group_id, regex, None)


def resolve_if_due(operation: Operation, group: ConsumerGroup) -> None:
    """Have the group's expressions resolved if that is worth it."""
    if group.resolving is not None or not group.counts.regexes:
        return
    resolved_at_ms = group.resolved_at_ms
    if resolved_at_ms is not None:
        age_ms = operation.now_ms - resolved_at_ms
        if 0 <= age_ms <= LEAST_INTERVAL_MS:  # below 0: the clock was set back
            return
        is_known = len(group.regexes) == len(group.counts.regexes)
        if is_known and not group.are_topics_new and 0 <= age_ms <= group.settings.regex_refresh_interval_ms:
            return
    group.resolving = {}
    operation.set_timer((RESOLVE, group.group_id), 0)


def resolve(machine: GroupMachine, operation: Operation, group_id: str) -> None:
    """Find out what the expressions of a group match by now, in slices if they are many."""
    group = machine.groups.get(group_id)
    if not isinstance(group, ConsumerGroup) or group.resolving is None:
        return
    found = group.resolving
    if not found:
        group.are_topics_new = False
    names = list(machine.topics.by_name)
    compared = 0
    for regex in group.counts.regexes:
        if regex not in found:
            if compared >= COMPARED_AT_ONCE:
                operation.set_timer((RESOLVE, group_id), 0)
                return
            found[regex] = _matching(regex, names, group.regexes.get(regex))
            compared += len(names)
    group.resolving = None
    _keep(machine, operation, group, found)


def _keep(machine: GroupMachine, operation: Operation, group: ConsumerGroup, found: dict[str, frozenset[str]]) -> None:
    has_changed = False
    for regex in list(group.counts.regexes):
        known = group.regexes.get(regex)
        has_changed |= found[regex] != (known.topics if known is not None else frozenset())
        write_regex(operation, group.group_id, regex, Resolved(found[regex], operation.now_ms))
    bump_if_changed(machine, operation, group, is_due=has_changed)


def _matching(regex: str, names: Iterable[str], known: Resolved | None) -> frozenset[str]:
    try:
        matches = compile_regex(regex)
    except RegexUnavailable:  # a broker that had it found out what is known
        return frozenset() if known is None else known.topics
    except GroupRefusal:  # a log may hold one that whoever wrote it understood
        return frozenset()
    return frozenset(name for name in names if matches(name))
