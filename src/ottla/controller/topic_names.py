"""Names that topics may have, and those that belong to the broker itself."""

from __future__ import annotations

import re

from ottla.wire.errors import ApiError, ErrorCode

MOST_CHARACTERS = 249
CLUSTER_METADATA = "__cluster_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"})
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    complaint = _complaint(name)
    if complaint is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {complaint}")


def is_legal(name: str) -> bool:
    return _complaint(name) is None


def _complaint(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MOST_CHARACTERS:
        return f"the length of '{name}' is longer than the max allowed length {MOST_CHARACTERS}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None
