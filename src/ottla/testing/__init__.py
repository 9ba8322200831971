"""What makes tests with Ottla easy: a broker in the process of the test, faults on demand, simulated twins.

`broker` and `cluster` are the ways in; with pytest the fixtures `ottla` and `ottla_cluster` are there as soon as Ottla
is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.local_broker import LocalBroker, broker
    from ottla.testing.local_cluster import LocalCluster, cluster
    from ottla.testing.stored_records import StoredRecord

__all__ = ["LocalBroker", "LocalCluster", "StoredRecord", "broker", "cluster"]


def __getattr__(name: str) -> Any:
    """Imported when they are used, for pytest looks into this package in every run."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ottla.testing import local_broker, local_cluster

    return getattr(local_cluster if hasattr(local_cluster, name) else local_broker, name)
