"""The store of a new broker, laid out once in a process and copied from then on: that is a third of a start."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from ottla.broker.stores import STORE
from ottla.controller import layout
from ottla.controller.sqlite_nodes import SqliteNodes


def put_fresh_store(folder: str) -> None:
    """Put a store with nothing in it into a folder that has none."""
    Path(folder, STORE).write_bytes(_laid_out())


@functools.cache
def _laid_out() -> bytes:
    with tempfile.TemporaryDirectory(prefix="ottla-store-") as folder:
        path = Path(folder, STORE)
        nodes = SqliteNodes(str(path), survives_power_loss=False)
        nodes.commit(layout.prepare_operations({}))
        nodes.close()
        return path.read_bytes()
