"""The definition of a setting, and how a dataclass declares its settings."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ottla.config.check import Check
from ottla.config.value import Kind, Value, parse_value, text_of


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker's setting that a resource's setting takes its value from when it has none itself."""

    name: str
    kind: Kind
    default: Value = None  # what the broker has when nobody set it
    factor: int = 1  # how many of the setting's unit one of the synonym's makes: 3,600,000 ms an hour
    is_limit: bool = False  # any number below zero is none

    def parse(self, text: str) -> Value:
        """The value in the synonym's own unit."""
        return parse_value(self.name, self.kind, text)

    def convert(self, value: Value) -> Value:
        """A value of the synonym in the unit of the setting."""
        if self.is_limit and isinstance(value, int) and value < 0:
            return -1
        return value if self.factor == 1 or not isinstance(value, int) else value * self.factor


@dataclass(frozen=True, slots=True)
class Definition:
    """All there is to know of one setting."""

    name: str
    kind: Kind
    default: Value
    documentation: str
    check: Check | None = None
    synonyms: tuple[Synonym, ...] = ()  # in the order of their precedence
    is_internal: bool = False  # listed only where it is set
    is_kept_only: bool = False  # accepted, stored and described, without an effect of its own

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    @property
    def is_sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD

    def parse(self, text: str) -> Value:
        """The typed, checked value; ConfigError says what is wrong in Kafka's words."""
        return self.validate(self.name, parse_value(self.name, self.kind, text))

    def validate(self, name: str, value: Value) -> Value:
        """The value to keep. `name` is what to blame: this setting, or the synonym the value is from."""
        return value if self.check is None else self.check(name, value)

    def shown(self, value: Value) -> str | None:
        """The value's text for others to read; None for a secret."""
        return None if self.is_sensitive else text_of(value)


def setting(
    name: str,
    kind: Kind,
    default: Value,
    documentation: str,
    *,
    check: Check | None = None,
    synonyms: str | tuple[Synonym, ...] = (),
    is_internal: bool = False,
    is_kept_only: bool = False,
) -> Any:
    """A dataclass field that is a setting; `definitions_of` reads them back.

    A single synonym of the same kind and default is given by its name alone.
    """
    if isinstance(synonyms, str):
        synonyms = (Synonym(synonyms, kind, default),)
    definition = Definition(name, kind, default, documentation, check, synonyms, is_internal, is_kept_only)
    return dataclasses.field(default=default, metadata={"definition": definition})


def definitions_of(declared: type) -> dict[str, Definition]:
    """The settings that a dataclass declares, by name, in the order of declaration."""
    fields = dataclasses.fields(declared)
    definitions: list[Definition] = [f.metadata["definition"] for f in fields if "definition" in f.metadata]
    return {definition.name: definition for definition in definitions}
