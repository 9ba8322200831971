"""Options as text, in the names of Spark's own Kafka source and sink: checked, and told apart by kind."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")

CLIENT_NAMES = (
    "kafka.bootstrap.servers", "kafka.client.id", "kafka.request.timeout.ms",
    "kafka.socket.connection.setup.timeout.ms", "kafka.retry.backoff.ms", "kafka.security.protocol",
)  # fmt: skip
INT32, INT64 = (1 << 31) - 1, (1 << 63) - 1
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class OptionError(ValueError):
    """An option is unknown, missing or wrong; the sentence says which one and what it may be."""


class Options:
    """What Spark hands over: names in any case, values as text."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str], what: str) -> None:
        """OptionError for a name that `what` does not know, with the one that is nearest to it."""
        names = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() not in names:
                raise OptionError(_unknown(name, names, what))
            self._values[name.lower()] = str(value).strip()

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name.lower(), default)

    def has(self, name: str) -> bool:
        return name.lower() in self._values

    def required(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise OptionError(f'option {name} is missing: set it with .option("{name}", ...)')
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name, str(default)).lower()
        if value not in ("true", "false"):
            raise OptionError(f"option {name} is true or false, not {value!r}")
        return value == "true"

    def number(self, name: str, default: T, least: int = 0, most: int = INT64) -> int | T:
        if not self.has(name):
            return default
        value = self.text(name)
        if not re.fullmatch(r"-?[0-9]{1,30}", value) or int(value) < least:
            raise OptionError(f"option {name} is a whole number of at least {least}, not {value!r}")
        if int(value) > most:
            raise OptionError(f"option {name} is at most {most}, not {value}")
        return int(value)

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        value = self.text(name, default)
        found = {choice.lower(): choice for choice in choices}
        if value.lower() not in found:
            raise OptionError(f"option {name} is one of {', '.join(found.values())}, not {value!r}")
        return found[value.lower()]

    def duration_ms(self, name: str, default_ms: int) -> int:
        """A number with a unit, such as 15m or 500ms; without a unit it is milliseconds."""
        if not self.has(name):
            return default_ms
        found = re.fullmatch(r"(\d+)\s*([a-z]*)", self.text(name).lower())
        if found is None or (found.group(2) or "ms") not in _UNITS_MS:
            raise OptionError(f"option {name} is a time such as 500ms, 30s, 15m or 1h, not {self.text(name)!r}")
        return int(found.group(1)) * _UNITS_MS[found.group(2) or "ms"]


def _unknown(name: str, names: Mapping[str, str], what: str) -> str:
    if name.lower() == "path":
        return f"{what} has no path: name the topic with an option"
    near = difflib.get_close_matches(name.lower(), names, 1)
    if not near and name.lower().startswith("kafka."):
        return f"{what} has no client option {name}: there are {', '.join(n for n in names.values() if '.' in n)}"
    hint = f": do you mean {names[near[0]]}?" if near else f": there are {', '.join(sorted(names.values()))}"
    return f"{what} has no option {name}{hint}"
