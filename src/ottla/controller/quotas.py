"""Client quotas: whom they are for, what may be set, and which of them somebody asks for. No I/O, Kafka's words.

A quota is for a user, a client id, both together, or an address; a name that is None is the default of all names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.controller import layout
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.describe_client_quotas import ComponentData

CLIENT_ID = "client-id"
USER = "user"
IP = "ip"
ENTITY_TYPES = (CLIENT_ID, USER, IP)  # in the order in which Kafka lists them
CLIENT_KEYS = ("consumer_byte_rate", "controller_mutation_rate", "producer_byte_rate", "request_percentage")
IP_KEYS = ("connection_creation_rate",)
WHOLE_NUMBERS = frozenset({"consumer_byte_rate", "producer_byte_rate", "connection_creation_rate"})
MOST_LONG = (1 << 63) - 1

EXACT, DEFAULT, SPECIFIED = 0, 1, 2

Entity = tuple[tuple[str, str | None], ...]
"""Types and names, in the order of ENTITY_TYPES."""


class Alteration(NamedTuple):
    key: str
    value: float | None  # None removes it


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """An entity from the parts that a request names; a type that comes twice counts as it came last."""
    named = dict(parts)
    known = [(kind, named.pop(kind)) for kind in ENTITY_TYPES if kind in named]
    return (*known, *named.items())


def check_entity(entity: Entity) -> None:
    if not entity:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in ENTITY_TYPES:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
    named = dict(entity)
    if IP in named:
        if len(named) > 1:
            message = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        _check_address(named[IP])


def _check_address(address: str | None) -> None:
    """Only addresses: the broker's thread must not wait for a name to be looked up."""
    if address is None:
        return
    import ipaddress  # few have such quotas

    try:
        ipaddress.ip_address(address)
    except ValueError:
        message = f"{address} is not a valid IP or resolvable host."
        raise ApiError(ErrorCode.INVALID_REQUEST, message) from None


def altered(entity: Entity, quotas: Mapping[str, float], alterations: Sequence[Alteration]) -> dict[str, float]:
    """The quotas of an entity after the alterations."""
    result = dict(quotas)
    keys = IP_KEYS if entity[0][0] == IP else CLIENT_KEYS
    for key, value in alterations:
        if value is None:
            result.pop(key, None)
            continue
        if key not in keys:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
        _check_value(key, value)
        result[key] = value
    return result


def _check_value(key: str, value: float) -> None:
    if value <= 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    if math.isnan(value):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Quota {key} must be a number")
    if key in WHOLE_NUMBERS:
        if value > MOST_LONG:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Proposed value for {key} is too large for a LONG.")
        if value != int(value):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{key} cannot be a fractional value.")


def shown(entity: Entity) -> str:
    """An entity as Kafka prints one."""
    return "{" + ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity) + "}"


# Asking


def check_components(components: Sequence[ComponentData]) -> None:
    kinds: set[str] = set()
    for component in components:
        _check_component(component)
        if component.entity_type in kinds:
            message = f"Entity type {component.entity_type} cannot appear more than once in the filter."
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        kinds.add(component.entity_type)
    if IP in kinds and len(kinds) > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        )


def _check_component(component: ComponentData) -> None:
    kind, match = component.entity_type, component.match
    if not kind:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
    if kind not in ENTITY_TYPES:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
    complaint = None
    match component.match_type:
        case 0 if match is None:
            complaint = "Request specified MATCH_TYPE_EXACT, but set match string to null."
        case 1 if match is not None:
            complaint = "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."
        case 2 if match is not None:
            complaint = "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."
        case other if other not in (EXACT, DEFAULT, SPECIFIED):
            complaint = f"Unknown match type {other}"
    if complaint is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, complaint)


def matches(entity: Entity, components: Sequence[ComponentData], *, strict: bool) -> bool:
    """Whether an entity has all that is asked for; `strict`: and nothing else."""
    named = dict(entity)
    if strict and len(named) != len(components):
        return False
    return all(
        component.entity_type in named and _fits(named[component.entity_type], component) for component in components
    )


def _fits(name: str | None, component: ComponentData) -> bool:
    match component.match_type:
        case 0:
            return name == component.match
        case 1:
            return name is None
        case _:
            return True


# Where they lie


def quota_path(entity: Entity) -> str:
    """The node of an entity: /config/users/u/clients/c for both together, /config/clients/c for a client alone."""
    named = dict(entity)
    if IP in named:
        return f"{layout.IP_QUOTAS}/{layout.sanitized(named[IP])}"
    if USER not in named:
        return f"{layout.CLIENT_QUOTAS}/{layout.sanitized(named[CLIENT_ID])}"
    path = f"{layout.USER_QUOTAS}/{layout.sanitized(named[USER])}"
    return f"{path}/clients/{layout.sanitized(named[CLIENT_ID])}" if CLIENT_ID in named else path


def entity_at(path: str) -> Entity | None:
    """The entity whose quotas lie at a path; None where a path only leads further down."""
    match path.split("/")[2:]:
        case ["ips", name]:
            return ((IP, layout.unsanitized(name)),)
        case ["clients", name]:
            return ((CLIENT_ID, layout.unsanitized(name)),)
        case ["users", user]:
            return ((USER, layout.unsanitized(user)),)
        case ["users", user, "clients", name]:
            return ((CLIENT_ID, layout.unsanitized(name)), (USER, layout.unsanitized(user)))
    return None
