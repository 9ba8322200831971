"""Python source that is written at run time, one function at a time."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class Source:
    """The text of one function as it grows, and the objects that it refers to by name."""

    def __init__(self, names: Mapping[str, object]) -> None:
        self._lines: list[str] = []
        self._places: list[str] = []
        self._names: dict[str, object] = dict(names)
        self._depth = 0
        self._fresh = 0
        self.place = ""
        """The field that the next lines deal with: errors name it."""

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)
        self._places.append(self.place)

    @contextmanager
    def placed(self, first: str, last: str) -> Iterator[None]:
        """Lines that deal with several fields at once."""
        place, self.place = self.place, first if first == last else f"{first} to {last}"
        yield
        self.place = place

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._depth += 1
        begun = len(self._lines)
        yield
        if len(self._lines) == begun:
            self.line("pass")
        self._depth -= 1

    def fresh(self, hint: str) -> str:
        """A name for a local variable that no other has."""
        self._fresh += 1
        return f"{hint}_{self._fresh}"

    def constant(self, hint: str, value: object) -> str:
        """A name for an object that lives outside of the function."""
        for name, known in self._names.items():
            if known is value:
                return name
        name = self.fresh(hint)
        self._names[name] = value
        return name

    def expression(self, hint: str, value: object) -> str:
        """An expression for a value: one that makes it anew, or the name of a constant."""
        if value is None or isinstance(value, bool | int | str | bytes):
            return repr(value)
        return "[]" if value == [] else self.constant(hint, value)

    def function(self, name: str, title: str) -> Callable[..., Any]:
        """Compiles the text. The title stands for the file in tracebacks, which show the text's lines."""
        text = "\n".join(self._lines) + "\n"
        filename = f"<{title}>"
        linecache.cache[filename] = len(text), None, text.splitlines(keepends=True), filename
        self._names["places"] = ["", *self._places]
        exec(compile(text, filename, "exec"), self._names)
        function: Callable[..., Any] = self._names[name]  # type: ignore[assignment]
        return function
