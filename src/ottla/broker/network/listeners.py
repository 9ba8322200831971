"""Where the broker listens and where it tells clients to connect: `listeners` and `advertised.listeners`.

Each listener has a name, and a client is told the address that belongs to the listener it came through. That is how
one broker serves clients inside and outside of a network of containers.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.config import ConfigError

PLAINTEXT = "PLAINTEXT"
_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)://(?P<host>\[[0-9A-Fa-f:.%]*\]|[^\[\]:/]*):(?P<port>\d{1,5})")
_ALL_ADDRESSES = {"", "0.0.0.0", "::"}


class Endpoint(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_listeners(texts: Iterable[str], protocols: str) -> dict[str, Endpoint]:
    """The listeners by name, in their order; no host means all addresses, port 0 any that is free."""
    listeners = _endpoints("listeners", texts)
    by_name = _protocols(protocols)
    for name in listeners:
        protocol = by_name.get(name)
        if protocol is None:
            raise ConfigError(f"listeners: {name} is not in listener.security.protocol.map; add {name}:PLAINTEXT to it")
        if protocol != PLAINTEXT:
            raise ConfigError(f"listeners: {name} is {protocol}; Ottla serves PLAINTEXT")
    ports = [endpoint for endpoint in listeners.values() if endpoint.port]
    if len(ports) != len(set(ports)):
        raise ConfigError("listeners: each needs an address of its own")
    return listeners


def check_inter_broker(name: str | None, listeners: Iterable[str]) -> None:
    """ConfigError if brokers are to reach each other through a listener that is not there."""
    names = list(listeners)
    if name and name.upper() not in names:
        raise ConfigError(f"inter.broker.listener.name: {name} is not among the listeners: {', '.join(names)}")


def read_advertised(texts: Iterable[str] | None, listeners: Mapping[str, Endpoint]) -> dict[str, Endpoint]:
    """What clients are told in place of where the broker listens, for the listeners that are named."""
    if texts is None:
        return {}
    advertised = _endpoints("advertised.listeners", texts)
    for name, endpoint in advertised.items():
        if name not in listeners:
            raise ConfigError(f"advertised.listeners: {name} is not among the listeners")
        if endpoint.host in _ALL_ADDRESSES - {""}:
            raise ConfigError(f"advertised.listeners: nobody can connect to {endpoint.host}; name a host")
    return advertised


def advertised_endpoint(listened: Endpoint, advertised: Endpoint | None) -> Endpoint:
    """The address to tell: what was given, completed by what the listening socket and the machine say."""
    host = advertised.host if advertised is not None and advertised.host else listened.host
    port = advertised.port if advertised is not None and advertised.port else listened.port
    return Endpoint(socket.getfqdn() if host in _ALL_ADDRESSES else host, port)


def plaintext(host: str, port: int) -> str:
    """The setting `listeners` for one address."""
    return f"{PLAINTEXT}://{Endpoint(host, port)}"


def _endpoints(setting: str, texts: Iterable[str]) -> dict[str, Endpoint]:
    endpoints: dict[str, Endpoint] = {}
    for text in texts:
        match = _LISTENER.fullmatch(text)
        if match is None or int(match["port"]) > 65535:
            raise ConfigError(f"{setting}: {text!r} is not NAME://HOST:PORT, as in PLAINTEXT://localhost:9092")
        name = match["name"].upper()
        if name in endpoints:
            raise ConfigError(f"{setting}: {name} is named twice")
        endpoints[name] = Endpoint(match["host"].strip("[]"), int(match["port"]))
    return endpoints


def _protocols(text: str) -> dict[str, str]:
    """NAME:PROTOCOL, with commas between them."""
    protocols = {}
    for part in text.split(","):
        name, colon, protocol = part.strip().partition(":")
        if not colon:
            raise ConfigError(f"listener.security.protocol.map: {part!r} is not NAME:PROTOCOL")
        protocols[name.upper()] = protocol.upper()
    return protocols
