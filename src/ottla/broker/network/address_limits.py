"""max.connections.per.ip.overrides: how many connections single addresses may have, as "127.0.0.1:200,10.0.0.7:5"."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config import ConfigError, Value


def parse_address_limits(name: str, text: str) -> dict[str, int]:
    """By address; ConfigError in Kafka's words."""
    limits = {}
    for part in text.split(",") if text.strip() else ():
        address, colon, limit = part.strip().rpartition(":")
        if not colon:
            complaint = f"begin 0, end -1, length {len(part.strip())}"
            raise ConfigError(f"Error parsing configuration property '{name}': {complaint}")
        try:
            limits[address.strip()] = int(limit)
        except ValueError:
            raise ConfigError(f'For input string: "{limit.strip()}"') from None
    return limits


@dataclass(frozen=True, slots=True)
class AddressLimits:
    """A check of such a text."""

    def __call__(self, name: str, value: Value) -> Value:
        parse_address_limits(name, str(value))
        return value

    def __str__(self) -> str:
        return "address:number, ..."
