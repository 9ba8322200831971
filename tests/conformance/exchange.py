"""What an exchange is, and how tables of them are written.

    exchanges = Exchanges("list_offsets")

    @exchanges.cases({"earliest": -2, "latest": -1})
    def special_timestamp(script: Script, timestamp: int) -> None:
        topic = script.topic(values=3)
        script.send(list_offsets(topic, timestamp=timestamp))

makes two exchanges, "special timestamp: earliest" and "special timestamp: latest", whose answers are kept in
answers/list_offsets.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from tests.conformance.script import Script

T = TypeVar("T")


class Exchange(NamedTuple):
    group: str
    """The file of answers it belongs to."""
    name: str
    """Unique in its group."""
    run: Callable[[Script], None]
    brokers: int = 1
    """How many the cluster has that it runs on."""
    without: int | None = None
    """The one of them that is down."""

    @property
    def full_name(self) -> str:
        return f"{self.group}: {self.name}"


class Exchanges:
    """Those of one group, in the order they were written."""

    def __init__(self, group: str, *, brokers: int = 1, without: int | None = None) -> None:
        """`without`: the broker that is down."""
        self.group = group
        self.brokers = brokers
        self.without = without
        self.all: list[Exchange] = []

    def one(self, function: Callable[[Script], None]) -> Callable[[Script], None]:
        """Decorates a function that is a single exchange."""
        self._add(_words(function.__name__), function)
        return function

    def cases(self, table: Mapping[str, T]) -> Callable[[Callable[[Script, T], None]], Callable[[Script, T], None]]:
        """Decorates a function that is an exchange for each row of a table."""

        def decorate(function: Callable[[Script, T], None]) -> Callable[[Script, T], None]:
            for label, argument in table.items():
                self._add(f"{_words(function.__name__)}: {label}", _bind(function, argument))
            return function

        return decorate

    def versions(
        self, versions: Iterable[int]
    ) -> Callable[[Callable[[Script, int], None]], Callable[[Script, int], None]]:
        """Decorates a function that is the same exchange in several versions."""
        return self.cases({f"version {version}": version for version in versions})

    def _add(self, name: str, run: Callable[[Script], None]) -> None:
        if any(name == other.name for other in self.all):
            raise ValueError(f"two exchanges are called {self.group}: {name}")
        self.all.append(Exchange(self.group, name, run, self.brokers, self.without))


def _words(function_name: str) -> str:
    return function_name.replace("_", " ")


def _bind(function: Callable[[Script, T], None], argument: T) -> Callable[[Script], None]:
    return lambda script: function(script, argument)
