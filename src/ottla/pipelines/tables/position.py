"""Where a change stands in the order of its source: a whole number, a text, or a list of those.

A table keeps positions as text that sorts as the positions do, so that Spark, Delta and Arrow compare them alike.
"""

from __future__ import annotations

import re

Part = int | str
Position = Part | list[Part]

_MOST_DIGITS = 26
_NINES = str.maketrans("0123456789", "9876543210")
# Lower than every character that a text may hold, so that a shorter text sorts before a longer one.
_END_OF_TEXT = "\x1f"
_NEVER_IN_TEXT = re.compile("[\x00-\x1f\ud800-\udfff]")


class InvalidPosition(ValueError):
    """A position that has no place in an order; the text says why."""


def encode_position(position: object) -> str:
    """The text that sorts as the position does. Lists are compared part by part, numbers before texts."""
    if not isinstance(position, list | tuple):
        return _encoded(position)
    if not position:
        raise InvalidPosition("the position is an empty list")
    return ".".join([_encoded(part) for part in position])


def _encoded(part: object) -> str:
    if type(part) is int:
        return _encoded_number(part)
    if isinstance(part, str):
        if _NEVER_IN_TEXT.search(part):
            raise InvalidPosition(f"the position {part!r} holds control characters or halves of characters")
        return f"~{part}{_END_OF_TEXT}"
    raise InvalidPosition(f"a position is made of whole numbers and texts, not of {part!r}")


def _encoded_number(number: int) -> str:
    digits = str(abs(number))
    if len(digits) > _MOST_DIGITS:
        raise InvalidPosition(f"the position {number} has more than {_MOST_DIGITS} digits")
    # The first letter is the count of digits. Capital letters sort before small ones: those are below zero.
    if number >= 0:
        return chr(ord("a") + len(digits) - 1) + digits
    return chr(ord("Z") - len(digits) + 1) + digits.translate(_NINES)


def decode_position(text: str) -> list[Part]:
    """The parts that `encode_position` was given."""
    parts: list[Part] = []
    while text:
        if text[0] == "~":
            part, _, text = text[1:].partition(_END_OF_TEXT)
            parts.append(part)
        else:
            digits_count = ord(text[0]) - ord("a") + 1 if text[0] >= "a" else ord("Z") - ord(text[0]) + 1
            digits = text[1 : 1 + digits_count]
            parts.append(int(digits) if text[0] >= "a" else -int(digits.translate(_NINES)))
            text = text[1 + digits_count :]
        text = text.removeprefix(".")
    return parts
