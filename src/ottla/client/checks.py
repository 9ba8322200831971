"""Options, names and positions that cannot be: whoever gives one is told in the line where it was given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")
LONGEST_TEXT_BYTES = 32_767
HIGHEST_INT = 2**31 - 1
ON_THE_WIRE = frozenset(
    {
        "request_timeout_ms", "transaction_timeout_ms", "session_timeout_ms", "max_poll_interval_ms", "partition_bytes",
        "fetch_bytes", "fetch_wait_ms", "max_request_bytes",
    }
)  # fmt: skip
"""Numbers that brokers are told, or that they count in, with 32 bits."""
COUNTED = frozenset({"batch_bytes", "buffer_bytes", "max_in_flight", "retries"})
"""There are no halves of them either."""
HIGHEST_OFFSET = 2**63 - 1
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_numbers(given: Mapping[str, object], least: Mapping[str, float]) -> None:
    """Each number that is named in `least`, if it is given. ValueError, or TypeError where it is none."""
    for name, smallest in least.items():
        value = given.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} is a number, not {value!r}")
        if not value >= smallest:  # and not a number that is none
            raise ValueError(f"{name} is at least {smallest:g}, not {value!r}")
        if isinstance(value, float) and (name in ON_THE_WIRE or name in COUNTED):
            raise TypeError(f"{name} is a whole number, not {value!r}")
        if value > HIGHEST_INT and name in ON_THE_WIRE:
            raise ValueError(f"{name} is at most {HIGHEST_INT:,}, not {value:,}")


def check_functions(**given: object) -> None:
    """What is to be called, if it is given."""
    for name, value in given.items():
        if value is not None and not callable(value):
            raise TypeError(f"{name} is a function, not {value!r}")


def check_texts(**given: object) -> None:
    """Names that are told to the broker, if they are given."""
    for name, value in given.items():
        if value is None:
            continue
        if not isinstance(value, str):
            raise TypeError(f"{name} is a str, not {value!r}")
        if not value:
            raise ValueError(f"{name} is not empty: leave it out if there is none")
        try:
            is_too_long = len(value.encode()) > LONGEST_TEXT_BYTES
        except UnicodeEncodeError:
            raise ValueError(f"{name} cannot be written as UTF-8: {value!r}") from None
        if is_too_long:
            raise ValueError(f"{name} has at most {LONGEST_TEXT_BYTES:,} bytes, not {len(value.encode()):,}")


def why_no_topic(name: object) -> str:
    """Why it cannot be the name of a topic; empty if it can."""
    if not isinstance(name, str):
        return f"a topic is a str, not {type(name).__name__}"
    if _TOPIC.fullmatch(name) is None:
        return f"a topic has up to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', not {name[:300]!r}"
    return "" if name not in (".", "..") else f"a topic is not called {name!r}"


def check_offset(offset: object) -> None:
    if isinstance(offset, bool) or not isinstance(offset, int):
        raise TypeError(f"an offset is an int, not {offset!r}")
    if not 0 <= offset <= HIGHEST_OFFSET:
        raise ValueError(f"an offset is a number from 0 to 2**63 - 1, not {offset}")


def check_leader_epoch(epoch: object) -> None:
    if isinstance(epoch, bool) or not isinstance(epoch, int):
        raise TypeError(f"a leader epoch is an int, not {epoch!r}")
    if not -1 <= epoch <= HIGHEST_INT:
        raise ValueError(f"a leader epoch is a number from 0 to 2**31 - 1, or -1 for none, not {epoch}")


def check_partition(index: object) -> None:
    if isinstance(index, bool) or not isinstance(index, int):
        raise TypeError(f"a partition is an int, not {index!r}")
    if not 0 <= index <= HIGHEST_INT:
        raise ValueError(f"a partition is a number from 0 to 2**31 - 1, not {index}")


def checked_partitions(given: object) -> list[int]:
    """By their numbers, each once."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"partitions are a list of numbers, not {given!r}; for one: [{given!r}]")
    listed = list(given)
    for index in listed:
        check_partition(index)
    return list(dict.fromkeys(listed))


def checked_rows(given: object, kind: type[T], field: str) -> list[T]:
    """Several things of one kind as a list. One by itself is refused where it could be taken for several."""
    if isinstance(given, (kind, str, bytes)) or not isinstance(given, Iterable):
        raise TypeError(f"{field} are a list of {kind.__name__}, not {given!r}")
    listed = list(given)
    for one in listed:
        if not isinstance(one, kind):
            raise TypeError(f"each of {field} is a {kind.__name__}, not {one!r}")
    return listed


def config_text(name: str, value: object) -> str | None:
    """A value of a configuration as Kafka writes it: numbers and booleans may be such."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is not None and not isinstance(value, str | int | float):
        raise TypeError(f"the value of {name} is a str, not {value!r}")
    return None if value is None else str(value)


def check_count(name: str, value: object) -> None:
    """As many as fit into 32 bits; what of that may be, the broker says."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an int, not {value!r}")
    if not -HIGHEST_INT <= value <= HIGHEST_INT:
        raise ValueError(f"{name} is at most {HIGHEST_INT:,}, not {value:,}")


def checked_names(names: object, field: str) -> list[str]:
    """Several names as a list. A single text is refused: it would be taken for as many names as it has letters."""
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise TypeError(f"{field} are a list of names, not {names!r}; for one: [{names!r}]")
    listed = list(names)
    for name in listed:
        if not isinstance(name, str):
            raise TypeError(f"each of {field} is a str, not {name!r}")
    return listed
