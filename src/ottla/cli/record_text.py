"""Records as people and programs write them on a line: bytes as text, hexadecimal or base64, times, JSON objects.

What `ottla consume` prints in a format, `ottla produce` reads in it.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime.fromtimestamp(0, UTC)
FORMATS = ("text", "json", "hex", "base64")

_AGO = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\0": "\0", "\\\\": "\\"}
_ESCAPE = re.compile(r"\\[tn0\\]")


class NotInFormat(ValueError):
    """A line that cannot be read; the text says why."""


def _from_hex(text: bytes) -> bytes:
    try:
        return bytes.fromhex(text.decode())
    except ValueError:
        raise NotInFormat("it is not hexadecimal") from None


def _from_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise NotInFormat("it is not base64") from None


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "text": bytes,
    "hex": binascii.hexlify,
    "base64": base64.b64encode,
}
DECODERS: dict[str, Callable[[bytes], bytes]] = {"text": bytes, "hex": _from_hex, "base64": _from_base64}


def to_plain(value: bytes | None) -> str | dict[str, str] | None:
    """Bytes for JSON: text where they are text, so that they can be read, and else so that nothing is lost."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def from_plain(value: Any, what: str) -> bytes | None:
    """The bytes that `to_plain` stands for. Other JSON values, which people like to write, are their own text."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        return _from_base64(value["base64"].encode())
    raise NotInFormat(f'{what} is neither text, nor null, nor {{"base64": TEXT}}')


def unescape(text: str) -> str:
    r"""A separator as it is typed: \t, \n, \0 and \\ stand for what they do in most places."""
    return _ESCAPE.sub(lambda match: _ESCAPES[match[0]], text)


def separator(text: str) -> bytes:
    if not text:
        raise argparse.ArgumentTypeError("a separator has at least one character")
    return unescape(text).encode()


def point_in_time(text: str) -> int:
    """Milliseconds since 1970, from those, from ISO 8601 (without a zone: the local one), or from so long ago."""
    if text.isdecimal():
        return int(text)
    if ago := _AGO.fullmatch(text):
        return time.time_ns() // 1_000_000 - int(ago[1]) * _UNIT_MS[ago[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: milliseconds since 1970, 2026-01-31T12:00:00Z, or 90s, 10m, 2h, 7d ago"
        ) from None
    return round(moment.astimezone(UTC).timestamp() * 1000)


def iso_time(timestamp_ms: int) -> str | None:
    """A time that people can read; None for none, and for one that no calendar has."""
    if timestamp_ms < 0:
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
