"""What the members of a consumer group have in common, counted: one more member costs the same in any group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.coordinator.consumer_member import Profile


@dataclass(slots=True)
class MemberCounts:
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
