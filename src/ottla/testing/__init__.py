"""What makes tests with Ottla easy: a broker in the process of the test, faults on demand, simulated twins.

`broker` is the way in; with pytest the fixture `ottla` is there as soon as Ottla is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.local_broker import LocalBroker, StoredRecord, broker

__all__ = ["LocalBroker", "StoredRecord", "broker"]


def __getattr__(name: str) -> Any:
    """Imported when they are used, for pytest looks into this package in every run."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ottla.testing import local_broker

    return getattr(local_broker, name)
