"""The file of a mirror: two clusters, and what is copied. What comes of it is run as a connector."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.connect.configuration import Configuration, load_document, read

DEFAULT_NAME = "mirror"
CONNECTOR = "ottla.connect.mirror.source:MirrorSource"
OF_FILE = ("name", "session_timeout_ms")


def load_mirror(path: Path, environment: Mapping[str, str] | None = None) -> Configuration:
    """ConfigurationRefused says what is wrong, and where."""
    return load_document(path, environment, _read)


def _read(document: Mapping[str, Any], *rest: Any) -> Configuration:
    settings = {key: value for key, value in document.items() if key not in OF_FILE}
    name = document.get("name", DEFAULT_NAME)
    connectors = {"connectors": {name: {"type": CONNECTOR, **settings}}}
    of_file = {key: document[key] for key in ("session_timeout_ms",) if key in document}
    target = document.get("target")
    return read(connectors | of_file | ({"bootstrap": target} if isinstance(target, str) else {}), *rest)
