"""Checks of a setting's value, with the words Kafka uses when one fails.

A check is called with the setting's name and its value and returns the value to keep, or raises
ConfigError. Its str() says what it lets pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ottla.config.value import ConfigError, Value, invalid_value


class Check(Protocol):
    def __call__(self, name: str, value: Value) -> Value: ...


@dataclass(frozen=True, slots=True)
class Between:
    """A number from `low` to `high`, both included; no `high`: no upper limit."""

    low: int
    high: int | None = None

    def __call__(self, name: str, value: Value) -> Value:
        if not isinstance(value, int | float):
            raise invalid_value(name, value, "Value must be non-null")
        if value < self.low:
            raise invalid_value(name, value, f"Value must be at least {self.low}")
        if self.high is not None and value > self.high:
            raise invalid_value(name, value, f"Value must be no more than {self.high}")
        return value

    def __str__(self) -> str:
        return f"at least {self.low}" if self.high is None else f"{self.low} to {self.high}"


def at_least(low: int) -> Between:
    return Between(low)


@dataclass(frozen=True, slots=True)
class BetweenOr:
    """A number from `low` to `high`, or one other that means something of its own."""

    low: int
    high: int
    other: int

    def __call__(self, name: str, value: Value) -> Value:
        if isinstance(value, int) and (value == self.other or self.low <= value <= self.high):
            return value
        complaint = f"Value must be between {self.low} and {self.high} or equal to {self.other}"
        raise invalid_value(name, value, complaint)

    def __str__(self) -> str:
        return f"{self.other}, or {self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few words, in this very case."""

    choices: tuple[str, ...]

    def __call__(self, name: str, value: Value) -> Value:
        if value not in self.choices:
            raise invalid_value(name, value, f"String must be one of: {', '.join(self.choices)}")
        return value

    def __str__(self) -> str:
        return ", ".join(self.choices)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of words, each kept once; without `choices` any words, but no empty one."""

    choices: tuple[str, ...] = ()
    may_be_empty: bool = True

    def __call__(self, name: str, value: Value) -> Value:
        if not isinstance(value, tuple):
            raise ConfigError(f"Configuration '{name}' values must not be null.")
        if not value and not self.may_be_empty:
            valid = f"[{', '.join(self.choices)}]" if self.choices else "any non-empty value"
            raise ConfigError(f"Configuration '{name}' must not be empty. Valid values include: {valid}")
        for word in value:
            if not word:
                raise ConfigError(f"Configuration '{name}' values must not be empty.")
            if self.choices:
                OneOf(self.choices)(name, word)
        return tuple(dict.fromkeys(value))

    def __str__(self) -> str:
        words = f"any of {', '.join(self.choices)}" if self.choices else "words"
        return f"{words}, or nothing" if self.may_be_empty else words


@dataclass(frozen=True, slots=True)
class NonEmpty:
    """A text with something in it."""

    def __call__(self, name: str, value: Value) -> Value:
        if value == "":
            raise invalid_value(name, value, "String must be non-empty")
        return value

    def __str__(self) -> str:
        return "not empty"
