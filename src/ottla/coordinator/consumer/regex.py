"""Regular expressions of topic names: RE2's language, in which no expression can take long."""

from __future__ import annotations

from collections.abc import Callable

from ottla.wire.errors import ApiError, ErrorCode

MOST_MATCHER_BYTES = 8 << 20

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


def compile_regex(regex: str) -> Callable[[str], bool]:
    """What tells whether a name matches as a whole; ApiError if the expression is none."""
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


def _refusal(regex: str, complaint: bytes | str) -> ApiError:
    text = complaint.decode("utf-8", "replace") if isinstance(complaint, bytes) else complaint
    what, _, _ = text.partition(": ")
    said = _COMPLAINTS.get(text) or _COMPLAINTS.get(what, what)
    message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {said}."
    return ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
