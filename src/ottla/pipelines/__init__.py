"""Pipelines on Spark: the data source `ottla`, tables that follow changes, and what is built on them.

The names here are loaded when they are asked for, so that one that needs little does not pay for Spark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.pipelines.tables.apply import apply_changes
    from ottla.pipelines.tables.dead_letters import DeadLetters
    from ottla.pipelines.tables.event import ChangeEvent, encode_event, encode_key
    from ottla.pipelines.tables.pipeline import Pipeline, Table, load_pipeline
    from ottla.pipelines.tables.read import read_arrow
    from ottla.pipelines.tables.read_spark import read_table
    from ottla.pipelines.tables.sqlite_capture import capture, relay

_HOMES = {
    "ChangeEvent": "tables.event",
    "DeadLetters": "tables.dead_letters",
    "Pipeline": "tables.pipeline",
    "Table": "tables.pipeline",
    "apply_changes": "tables.apply",
    "capture": "tables.sqlite_capture",
    "encode_event": "tables.event",
    "encode_key": "tables.event",
    "load_pipeline": "tables.pipeline",
    "read_arrow": "tables.read",
    "read_table": "tables.read_spark",
    "relay": "tables.sqlite_capture",
}

__all__ = [
    "ChangeEvent",
    "DeadLetters",
    "Pipeline",
    "Table",
    "apply_changes",
    "capture",
    "encode_event",
    "encode_key",
    "load_pipeline",
    "read_arrow",
    "read_table",
    "relay",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
