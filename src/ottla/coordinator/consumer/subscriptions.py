"""What the members of a consumer group subscribe to: by name, or by regular expressions that the group resolves.

Expressions are resolved for a whole group, one after the other, soon after a heartbeat asks for it and never more often
than every ten seconds; members learn of what was found with their next heartbeat. One that matches too many topics
keeps those that it is known to match, and who comes with it anew is refused.
"""

from __future__ import annotations

import enum
import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ottla.coordinator.consumer.member import Profile
from ottla.coordinator.consumer.records import write_regex
from ottla.coordinator.consumer.regex import Matcher, RegexUnavailable, compile_regex
from ottla.coordinator.consumer.settings import ConsumerSettings
from ottla.coordinator.operation import Operation, Work
from ottla.coordinator.topics_view import TopicsView
from ottla.wire.errors import ApiError, ErrorCode

LEAST_INTERVAL_MS = 10_000
COMPARED_AT_ONCE = 300  # names, some microseconds each
COMPARED_INSTRUCTIONS = 6000  # and no more names than make so many instructions of a matcher
MOST_TOPICS = 10_000
"""That an expression may match: a member may have to be told of all of them, and they are noted in one record."""
NO_TOPICS_HASH = 0

Found: TypeAlias = Callable[[Operation, str, frozenset[str]], None]
"""Gets the topics that an expression matches."""


class RegexChange(enum.Enum):
    """What a heartbeat did to the expression that a member subscribes by."""

    NONE = enum.auto()
    UNRESOLVED = enum.auto()  # what it matches is to be found out
    RESOLVED = enum.auto()  # what it matches is known, or it is gone


class Resolved(NamedTuple):
    """The topics that a regular expression matched, and when that was found out."""

    topics: frozenset[str]
    timestamp_ms: int


@dataclass(slots=True)
class MemberCounts:
    """What members have in common, counted: one more member costs the same in any group."""

    names: Counter[str] = field(default_factory=Counter)  # how many members subscribe to a topic by its name
    regexes: Counter[str] = field(default_factory=Counter)  # and by an expression
    protocols: Counter[str] = field(default_factory=Counter)  # how many classic members offer a protocol
    classic: int = 0

    def replace(self, before: Profile, after: Profile) -> bool:
        """A member has another profile (one that is not there has an empty one); whether its group subscribes to
        something that nobody subscribed to before, or no more to what somebody did.
        """
        has_changed = False
        if before.topic_names != after.topic_names:
            has_changed = _count(self.names, after.topic_names, before.topic_names)
        if before.regex != after.regex:
            has_changed |= _count(self.regexes, filter(None, [after.regex]), filter(None, [before.regex]))
        if before.classic != after.classic:
            _count(self.protocols, _protocols(after), _protocols(before))
            self.classic += (after.classic is not None) - (before.classic is not None)
        return has_changed

    def is_offered_by_all(self, protocols: Iterable[str]) -> bool:
        """Whether all classic members offer one of these."""
        return any(self.protocols[name] == self.classic for name in protocols)


def _count(users: Counter[str], come: Iterable[str], gone: Iterable[str]) -> bool:
    """Count what one member uses instead of other things; whether something is used for the first time, or no more."""
    count = len(users)
    users.update(come)
    has_changed = len(users) != count
    for each in gone:
        users[each] -= 1
        if not users[each]:
            del users[each]
            has_changed = True
    return has_changed


def _protocols(profile: Profile) -> set[str]:
    return set() if profile.classic is None else {name for name, _ in profile.classic.protocols}


class Subscriptions:
    """Counts and resolved expressions last, and change only by a replayed record; marks are made anew."""

    def __init__(self, group_id: str, settings: Callable[[str], ConsumerSettings], topics: TopicsView) -> None:
        self._group_id = group_id
        self._settings = settings
        self._topics = topics
        self.counts = MemberCounts()
        self.regexes: dict[str, Resolved] = {}
        self._topic_names: frozenset[str] | None = frozenset()  # None: to be gathered anew
        # Marks; a heartbeat looks at them.
        self.are_topics_changed = True  # those it subscribes to, since it last looked
        self.are_topics_new = True  # topics have come since regular expressions were last resolved
        self.is_resolving = False
        self._too_wide: set[str] = set()  # expressions that match too much

    # Replay

    def replay_profile(self, before: Profile, after: Profile) -> None:
        if self.counts.replace(before, after):
            self._topic_names = None

    def replay_regex(self, regex: str, resolved: Resolved | None) -> None:
        if resolved is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = resolved
        self._topic_names = None

    # Topics

    def topics_of(self, profile: Profile) -> frozenset[str]:
        """The names that a member subscribes to, as far as they are known."""
        resolved = self.regexes.get(profile.regex) if profile.regex else None
        return profile.topic_names if resolved is None else profile.topic_names | resolved.topics

    def ids_of(self, profile: Profile) -> frozenset[bytes]:
        """Those of them that exist."""
        by_name = self._topics.by_name
        return frozenset([by_name[name].topic_id for name in by_name.keys() & self.topics_of(profile)])

    @property
    def topic_names(self) -> frozenset[str]:
        """All names that members subscribe to."""
        if self._topic_names is None:
            matched = [self.regexes[regex].topics for regex in self.counts.regexes if regex in self.regexes]
            self._topic_names = frozenset(self.counts.names).union(*matched)
        return self._topic_names

    def partition_counts(self) -> dict[bytes, int]:
        """Of those topics that exist, in the order of their names: whoever computes it gets the same."""
        return partition_counts(self._topics, self.topic_names)

    def topics_hash(self) -> int:
        return topics_hash(self._topics, self.topic_names)

    def note_changed_topics(self, names: set[str], have_come: bool) -> None:
        """Topics have come, gone or grown: the group looks at its own with its next heartbeat."""
        if not self.topic_names.isdisjoint(names):
            self.are_topics_changed = True
        if have_come:
            self.are_topics_new = True

    # Regular expressions

    def change_regex(self, operation: Operation, before: str, after: str) -> RegexChange:
        """A member subscribes by another expression, as its record says already."""
        if before == after:
            return RegexChange.NONE
        self.drop_unused(operation, before)
        return RegexChange.RESOLVED if not after or after in self.regexes else RegexChange.UNRESOLVED

    def drop_unused(self, operation: Operation, regex: str) -> None:
        if regex in self.regexes and regex not in self.counts.regexes:
            write_regex(operation, self._group_id, regex, None)

    def is_resolving_due(self, now_ms: int) -> bool:
        """Whether it is worth it to resolve the group's expressions."""
        if self.is_resolving or not self.counts.regexes:
            return False
        resolved = next(iter(self.regexes.values()), None)  # all are resolved at once
        if resolved is None:
            return True
        age_ms = now_ms - resolved.timestamp_ms
        if 0 <= age_ms <= LEAST_INTERVAL_MS:  # below 0: the clock was set back
            return False
        is_known = len(self.regexes) == len(self.counts.regexes)
        interval_ms = self._settings(self._group_id).regex_refresh_interval_ms
        return not is_known or self.are_topics_new or not 0 <= age_ms <= interval_ms

    def resolving(self, found: Found, done: Callable[[Operation], None]) -> Work:
        """Find out what the expressions match by now, some names an event; `found` gets it, one by one."""
        self.are_topics_new = False
        names = list(self._topics.by_name)
        looked_at: set[str] = set()
        while regex := next((each for each in self.counts.regexes if each not in looked_at), None):
            looked_at.add(regex)
            matches = _matcher(regex)
            if matches is None:  # a broker that had the library found out what is known
                known = self.regexes.get(regex)
                yield functools.partial(_tell, found, regex, [] if known is None else known.topics)
                continue
            matched: list[str] = []
            at_once = max(min(COMPARED_AT_ONCE, COMPARED_INSTRUCTIONS // matches.size), 1)
            for start in range(0, len(names), at_once):
                yield functools.partial(_compare, matches, names[start : start + at_once], matched)
            yield functools.partial(_tell, found, regex, matched)
        yield done

    def keep_resolved(self, operation: Operation, regex: str, topics: frozenset[str]) -> bool:
        """Write what an expression matches, if anybody still uses it; whether it is something new."""
        if regex not in self.counts.regexes:
            return False
        known = self.regexes.get(regex)
        before = known.topics if known is not None else frozenset[str]()
        self._too_wide.discard(regex)
        if len(topics) > MOST_TOPICS:
            self._too_wide.add(regex)
            operation.warn(f"{_too_wide(regex)} It keeps those that it is known to match.", group=self._group_id)
            topics = before & topics
        write_regex(operation, self._group_id, regex, Resolved(topics, operation.now_ms))
        return topics != before

    def check_width(self, regex: str, *, is_new: bool) -> None:
        """Refuse one who comes with an expression that matches too much, or has nothing by it."""
        if regex in self._too_wide and (is_new or not self.regexes[regex].topics):
            raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, _too_wide(regex))


def _too_wide(regex: str) -> str:
    return f"SubscribedTopicRegex `{regex}` matches more than {MOST_TOPICS} topics."


def _tell(found: Found, regex: str, topics: Iterable[str], operation: Operation) -> None:
    found(operation, regex, frozenset(topics))


def _compare(matches: Matcher | _Nothing, names: list[str], matched: list[str], _operation: Operation) -> None:
    matched += [name for name in names if matches(name)]


class _Nothing:
    """Matches no name: a log may hold an expression that whoever wrote it understood."""

    size = 1

    def __call__(self, _name: str) -> bool:
        return False


def _matcher(regex: str) -> Matcher | _Nothing | None:
    """None where there is no library for expressions."""
    try:
        return compile_regex(regex)
    except RegexUnavailable:
        return None
    except ApiError:
        return _Nothing()


def partition_counts(topics: TopicsView, names: frozenset[str]) -> dict[bytes, int]:
    by_name = topics.by_name
    found = [by_name[name] for name in sorted(by_name.keys() & names)]
    return {topic.topic_id: topic.partition_count for topic in found}


def topics_hash(topics: TopicsView, names: frozenset[str]) -> int:
    """A number that is another one when topics have come, gone, been made anew or grown."""
    counts = partition_counts(topics, names)
    if not counts:
        return NO_TOPICS_HASH
    digest = hashlib.blake2b(digest_size=8)
    for topic_id, count in counts.items():
        digest.update(topic_id + count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
