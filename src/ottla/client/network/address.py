"""Where brokers listen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

DEFAULT_PORT = 9092
HIGHEST_PORT = 65535
LONGEST_LABEL = 63


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(given: str | Sequence[str]) -> tuple[Address, ...]:
    """Addresses as "host:port,host:port", or a list; ValueError says which one is wrong. The port may be left out."""
    text = given if isinstance(given, str) else ",".join(_text(one) for one in given)
    addresses = tuple(_parse(part.strip()) for part in text.split(",") if part.strip())
    if not addresses:
        raise ValueError("no address: it is HOST:PORT, as in localhost:9092")
    return addresses


def _text(one: object) -> str:
    if not isinstance(one, str):
        raise TypeError(f"{one!r} is no address: it is a str, as in 'localhost:9092'")
    return one


def _parse(text: str) -> Address:
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        is_sound = bool(bracket) and (not port or port.startswith(":"))
        port = port[1:]
    else:
        host, colon, port = text.partition(":")
        is_sound = not colon or bool(port)
    number = int(port) if port.isdecimal() else 0
    if not is_sound or not _is_host(host) or (port and not 0 < number <= HIGHEST_PORT):
        raise ValueError(f"{text!r} is no address: it is HOST:PORT, as in localhost:9092 or [::1]:9092")
    return Address(host, number or DEFAULT_PORT)


def _is_host(text: str) -> bool:
    """Whether it can be one: names of hosts have up to 63 characters between dots, and nothing that is not seen."""
    is_seen = text.isprintable() and not any(map(str.isspace, text))
    return is_seen and bool(text) and all(len(label) <= LONGEST_LABEL for label in text.split("."))
