"""Regular expressions of topic names: RE2's language, in which the time that an expression takes has a bound.

The bound grows with the expression, and that is where a limit is needed: 30,000 characters can take half a minute for
one name, and ten characters can stand for thousands.
"""

from __future__ import annotations

from typing import Any

from ottla.wire.errors import ApiError, ErrorCode

MOST_CHARACTERS = 1000
MOST_MATCHER_BYTES = 1 << 17

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


class RegexUnavailable(ApiError):
    """RE2 is an optional dependency: who only wants the client does not install it."""

    def __init__(self) -> None:
        message = "This broker has no library for regular expressions: install ottla[broker] where it runs."
        super().__init__(ErrorCode.INVALID_REGULAR_EXPRESSION, message)


class Matcher:
    """Tells whether a name matches as a whole."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def __call__(self, name: str) -> bool:
        return self._compiled.fullmatch(name.encode()) is not None

    @property
    def size(self) -> int:
        """The instructions of its program. A name takes some 5 ns for each of them and each character, at most."""
        size: int = self._compiled.programsize
        return size


def compile_regex(regex: str) -> Matcher:
    """ApiError if the expression is none, or too large."""
    if len(regex) > MOST_CHARACTERS:
        message = f"SubscribedTopicRegex has {len(regex)} characters, and {MOST_CHARACTERS} at most are allowed."
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
    try:
        import re2
    except ImportError as error:
        raise RegexUnavailable from error

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True  # nobody asks what a group matched, and to know it takes very long
    options.max_mem = MOST_MATCHER_BYTES
    try:
        return Matcher(re2.compile(regex, options))
    except re2.error as error:
        raise _refusal(regex, error.args[0]) from error


def _refusal(regex: str, complaint: bytes | str) -> ApiError:
    text = complaint.decode("utf-8", "replace") if isinstance(complaint, bytes) else complaint
    what, _, _ = text.partition(": ")
    said = _COMPLAINTS.get(text) or _COMPLAINTS.get(what, what)
    message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {said}."
    return ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
