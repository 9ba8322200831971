"""What becomes of a resource's configuration when somebody changes it. Decisions without I/O, in Kafka's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.config import Definition, Kind
from ottla.config.value import LIST_COMMA
from ottla.wire.errors import ApiError, ErrorCode


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


MOST_SETTINGS = 1000  # of one resource
_OPERATIONS = frozenset(map(int, ConfigOperation))
_SET, _DELETE = int(ConfigOperation.SET), int(ConfigOperation.DELETE)  # a request may have tens of thousands of them


class ConfigChange(NamedTuple):
    """One change of one setting."""

    name: str
    operation: int
    value: str | None


def check_count(settings: int) -> None:
    """There are not nearly as many, but brokers keep what nobody knows."""
    if settings > MOST_SETTINGS:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"More than {MOST_SETTINGS} settings of one resource.")


def check_asked(asked: Sequence[ConfigChange]) -> None:
    """Refuse changes that contradict each other or say too little, whatever they are for."""
    check_count(len(asked))
    if len({change.name for change in asked}) < len(asked):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [change.name for change in asked if change.value is None and change.operation != _DELETE]
    if nulls:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")
    if not _OPERATIONS.issuperset([change.operation for change in asked]):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)


def changed(
    texts: Mapping[str, str],
    asked: Sequence[ConfigChange],
    definitions: Mapping[str, Definition],
    effective: Callable[[str], str],
) -> dict[str, str]:
    """The texts after the changes; `effective` tells what a list holds that is not set itself."""
    result = dict(texts)
    for name, operation, value in asked:
        if operation == _SET:
            result[name] = value or ""
        elif operation == _DELETE:
            result.pop(name, None)
        else:
            definition = definitions.get(name)
            if definition is None or definition.kind is not Kind.LIST:
                message = f"Can't {ConfigOperation(operation).name} to key {name} because its type is not LIST."
                raise ApiError(ErrorCode.INVALID_CONFIG, message)
            words = _words(result[name] if name in result else effective(name))
            result[name] = ",".join(_changed_words(words, ConfigOperation(operation), value or ""))
    return result


def _changed_words(words: list[str], change: ConfigOperation, text: str) -> list[str]:
    given = LIST_COMMA.split(text.strip())  # of nothing: one word without letters, which is refused
    if change is ConfigOperation.APPEND:
        return words + [word for word in given if word not in words]
    return [word for word in words if word not in given]


def _words(text: str) -> list[str]:
    return LIST_COMMA.split(text.strip()) if text.strip() else []
