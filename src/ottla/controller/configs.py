"""What becomes of a resource's configuration when somebody changes it. Decisions without I/O, in Kafka's words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.config import Definition, Kind
from ottla.config.value import LIST_COMMA
from ottla.controller.refusal import Refusal
from ottla.wire.errors import ErrorCode


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Change(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS = frozenset(map(int, Change))


class Asked(NamedTuple):
    """One change of one setting."""

    name: str
    operation: int
    value: str | None


def check_asked(asked: Sequence[Asked]) -> None:
    """Refuse changes that contradict each other or say too little, whatever they are for."""
    if any(times > 1 for times in Counter(change.name for change in asked).values()):
        raise Refusal(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [change.name for change in asked if change.value is None and change.operation != Change.DELETE]
    if nulls:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")
    if any(change.operation not in _OPERATIONS for change in asked):
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)


def changed(
    texts: Mapping[str, str],
    asked: Sequence[Asked],
    definitions: Mapping[str, Definition],
    effective: Callable[[str], str],
) -> dict[str, str]:
    """The texts after the changes; `effective` tells what a list holds that is not set itself."""
    result = dict(texts)
    for name, operation, value in asked:
        text = value or ""
        match Change(operation):
            case Change.SET:
                result[name] = text
            case Change.DELETE:
                result.pop(name, None)
            case Change.APPEND | Change.SUBTRACT as change:
                definition = definitions.get(name)
                if definition is None or definition.kind is not Kind.LIST:
                    message = f"Can't {change.name} to key {name} because its type is not LIST."
                    raise Refusal(ErrorCode.INVALID_CONFIG, message)
                words = _words(result[name] if name in result else effective(name))
                given = LIST_COMMA.split(text.strip())  # of nothing: one word without letters, which is refused
                if change is Change.APPEND:
                    words += [word for word in given if word not in words]
                else:
                    words = [word for word in words if word not in given]
                result[name] = ",".join(words)
    return result


def _words(text: str) -> list[str]:
    return LIST_COMMA.split(text.strip()) if text.strip() else []
