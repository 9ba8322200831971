"""Who asks for what: principals, the permissions that a request needs, and who decides.

The words and the numbers are Kafka's. There are no rules yet: everybody is anonymous and may do everything.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ottla.wire.errors import ProtocolError


class Operation(enum.IntEnum):
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


# What a client may do, as sets of bits: without an authorizer, everything there is.
TOPIC_OPERATIONS = _bits(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
GROUP_OPERATIONS = _bits(
    Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
)
OPERATIONS_NOT_ASKED = -(1 << 31)


class ResourceType(enum.IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Permission(NamedTuple):
    operation: Operation
    resource_type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.operation.name} on {self.resource_type.name} {self.name}"


class Principal(NamedTuple):
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""Whoever comes through a listener that asks for no proof."""


class NotAuthorized(ProtocolError):
    """A request that its principal may not make."""


class Authorizer(Protocol):
    """Decides what a principal that came through a listener may do."""

    allows_everything: bool
    """Then nobody needs to find out which permissions a request takes."""

    def allows(self, principal: Principal, listener: str, permission: Permission) -> bool: ...


class AllowEverything:
    allows_everything = True

    def allows(self, principal: Principal, listener: str, permission: Permission) -> bool:
        return True


def check(authorizer: Authorizer, principal: Principal, listener: str, permissions: Iterable[Permission]) -> None:
    """NotAuthorized at the first permission that is missing."""
    for permission in permissions:
        if not authorizer.allows(principal, listener, permission):
            raise NotAuthorized(f"{principal} has no permission to {permission}")
