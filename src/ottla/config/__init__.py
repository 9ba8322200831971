"""Named settings: their kinds, checks and documentation, and where their values come from."""

from ottla.config.check import Between, BetweenOr, Check, ListOf, NonEmpty, OneOf, at_least
from ottla.config.definition import Definition, Synonym, definitions_of, setting
from ottla.config.layer import Described, Layer, Source, SynonymValue, by_synonym, describe, resolve, resolve_set
from ottla.config.value import ConfigError, Kind, Password, Value, parse_value, text_of

__all__ = [
    "Between",
    "BetweenOr",
    "Check",
    "ConfigError",
    "Definition",
    "Described",
    "Kind",
    "Layer",
    "ListOf",
    "NonEmpty",
    "OneOf",
    "Password",
    "Source",
    "Synonym",
    "SynonymValue",
    "Value",
    "at_least",
    "by_synonym",
    "definitions_of",
    "describe",
    "parse_value",
    "resolve",
    "resolve_set",
    "setting",
    "text_of",
]
