"""Ranges of versions, written as Kafka writes them: "3", "0-12", "9+"."""

from __future__ import annotations

from typing import NamedTuple

ENDLESS = 0x7FFF
"""Above every version there is: a version is an int16."""


class Versions(NamedTuple):
    least: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.least <= version <= self.highest

    def __str__(self) -> str:
        if self.highest == ENDLESS:
            return f"{self.least}+"
        return str(self.least) if self.least == self.highest else f"{self.least}-{self.highest}"


NEVER = Versions(ENDLESS, -1)
ALWAYS = Versions(0, ENDLESS)


def parse_versions(text: str) -> Versions:
    if text.endswith("+"):
        return Versions(int(text[:-1]), ENDLESS)
    least, _, highest = text.partition("-")
    return Versions(int(least), int(highest or least))
