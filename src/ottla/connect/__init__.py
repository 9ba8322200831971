"""Connectors: records from elsewhere into topics, and from topics to elsewhere, exactly once.

What a connector is made of is here; docs/connect.md shows how to write one.
"""

from __future__ import annotations

from ottla.connect.interface import (
    BadRecord,
    ConnectorRefused,
    Fenced,
    Finding,
    Sink,
    SinkBatch,
    Source,
    SourceRecord,
    Task,
)

__all__ = [
    "BadRecord",
    "ConnectorRefused",
    "Fenced",
    "Finding",
    "Sink",
    "SinkBatch",
    "Source",
    "SourceRecord",
    "Task",
]
