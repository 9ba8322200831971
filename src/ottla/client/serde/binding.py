"""Functions for keys and values, bound to the topic where they need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from ottla.client.errors import ClientError, InvalidRecord

Function: TypeAlias = Callable[[Any], Any]
Field: TypeAlias = Literal["key", "value"]
T = TypeVar("T")


@runtime_checkable
class Bindable(Protocol):
    """Makes a function for the keys or the values of one topic."""

    def bind(self, topic: str, field: Field) -> Function: ...


Serializer: TypeAlias = Function | Bindable
Deserializer: TypeAlias = Function | Bindable


class _Bound:
    """The function for each topic, made once."""

    def __init__(self, given: Function | Bindable, field: Field) -> None:
        if not isinstance(given, Bindable) and not callable(given):
            raise TypeError(f"{field} is a function of one argument, not {given!r}")
        self._given = given
        self._field = field
        self._functions: dict[str, Function] = {}

    def function(self, topic: str) -> Function:
        found = self._functions.get(topic)
        if found is None:
            given = self._given
            found = given.bind(topic, self._field) if isinstance(given, Bindable) else given
            self._functions[topic] = found
        return found


class Serialized(bytes):
    """What no serializer is to see."""

    __slots__ = ()


class Serializers:
    """For a producer: a value and a key as they are given become those that are written."""

    def __init__(self, key: Serializer | None, value: Serializer | None) -> None:
        self._key = None if key is None else _Bound(key, "key")
        self._value = None if value is None else _Bound(value, "value")

    def __call__(self, topic: str, value: Any, key: Any) -> tuple[Any, Any]:
        if self._value is not None and value is not None and type(value) is not Serialized:
            value = _encoded(self._value, topic, "value", value)
        if self._key is not None and key is not None and type(key) is not Serialized:
            key = _encoded(self._key, topic, "key", key)
        return value, key


def _encoded(bound: _Bound, topic: str, what: str, given: Any) -> Any:
    try:
        return bound.function(topic)(given)
    except ClientError:
        raise
    except Exception as error:
        raise InvalidRecord(f"topic {topic}: the {what} cannot be serialized: {error}", topic=topic) from error


class Deserializers:
    """For a consumer: of the bytes of a record, what is handed out. What the functions raise is raised."""

    def __init__(self, key: Deserializer | None = None, value: Deserializer | None = None) -> None:
        self._key = None if key is None else _Bound(key, "key")
        self._value = None if value is None else _Bound(value, "value")

    @property
    def are_none(self) -> bool:
        return self._key is None and self._value is None

    def key(self, topic: str, data: bytes | None) -> Any:
        return data if data is None or self._key is None else self._key.function(topic)(data)

    def value(self, topic: str, data: bytes | None) -> Any:
        return data if data is None or self._value is None else self._value.function(topic)(data)
