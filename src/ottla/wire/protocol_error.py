"""The one exception of this room."""

from __future__ import annotations


class ProtocolError(ValueError):
    """Bytes that are not what Kafka's protocol says they are. Close the connection they came from."""
