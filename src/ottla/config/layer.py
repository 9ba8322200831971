"""Where a setting's value comes from: the resource itself, the broker's layers, or the default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ottla.config.definition import Definition
from ottla.config.value import Kind, Value


class Source(IntEnum):
    """Where a value was set, as DescribeConfigs numbers it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source sets, by the broker's names. A sequence of layers has the strongest first."""

    source: Source
    texts: Mapping[str, str]


class SynonymValue(NamedTuple):
    name: str
    text: str | None
    source: Source


class Described(NamedTuple):
    """A setting as DescribeConfigs answers it; `text` is None for a secret."""

    name: str
    text: str | None
    source: Source
    kind: Kind
    is_sensitive: bool
    synonyms: tuple[SynonymValue, ...]
    documentation: str


def resolve(definition: Definition, layers: Sequence[Layer]) -> tuple[Value, Source]:
    """The value the broker's layers give a setting that its resource does not set, and from where."""
    for layer in layers:
        for synonym in definition.synonyms:
            text = layer.texts.get(synonym.name)
            if text is not None:
                value = synonym.convert(synonym.parse(text))
                return definition.validate(synonym.name, value), layer.source
    return definition.default, Source.DEFAULT


def by_synonym(definitions: Iterable[Definition]) -> dict[str, list[Definition]]:
    """The settings that each of the broker's names gives a value to."""
    found: dict[str, list[Definition]] = {}
    for definition in definitions:
        for synonym in definition.synonyms:
            found.setdefault(synonym.name, []).append(definition)
    return found


def resolve_set(
    definitions_by_synonym: Mapping[str, Sequence[Definition]], layers: Sequence[Layer]
) -> dict[str, tuple[Value, Source]]:
    """What `resolve` says, by the names of the settings, of those alone that some layer sets: few of many."""
    return {
        definition.name: resolve(definition, layers)
        for layer in layers
        for name in layer.texts
        for definition in definitions_by_synonym.get(name, ())
    }


def describe(
    definition: Definition,
    override: str | None,
    layers: Sequence[Layer],
    override_source: Source = Source.TOPIC,
) -> Described:
    """A setting with its value and every synonym that is set, the one in force first."""
    synonyms = _synonyms(definition, layers)
    if override is None:
        text = definition.shown(resolve(definition, layers)[0])
    else:
        text = definition.shown(definition.parse(override))
        synonyms = (SynonymValue(definition.name, text, override_source), *synonyms)
    source = synonyms[0].source if synonyms else Source.DEFAULT
    is_sensitive = definition.is_sensitive
    return Described(definition.name, text, source, definition.kind, is_sensitive, synonyms, definition.documentation)


def _synonyms(definition: Definition, layers: Sequence[Layer]) -> tuple[SynonymValue, ...]:
    """Every value the broker has for the setting, in order of strength.

    Kafka lists nothing before the main synonym's own first value. So a retention set by log.retention.hours
    alone has no synonyms and looks like a default, until log.retention.ms is set too; clients know it so.
    """
    every = list(_all_synonyms(definition, layers))
    main = definition.synonyms[0].name if definition.synonyms else None
    start = next((index for index, synonym in enumerate(every) if synonym.name == main), len(every))
    return tuple(every[start:])


def _all_synonyms(definition: Definition, layers: Sequence[Layer]) -> Iterator[SynonymValue]:
    for layer in layers:
        for synonym in definition.synonyms:
            text = layer.texts.get(synonym.name)
            if text is not None:
                yield SynonymValue(synonym.name, definition.shown(synonym.parse(text)), layer.source)
    for synonym in definition.synonyms:
        if synonym.default is not None:
            yield SynonymValue(synonym.name, definition.shown(synonym.default), Source.DEFAULT)
