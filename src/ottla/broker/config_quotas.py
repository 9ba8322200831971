"""The quotas of clients as the store keeps them, and as the broker goes by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.controller import layout
from ottla.controller.quotas import Entity, entity_at, quota_path
from ottla.controller.store import Create, Operation, Set, Store, parent_of

if TYPE_CHECKING:
    from ottla.broker.quotas import Quotas


class StoredQuotas:
    """Every entity that has quotas."""

    def __init__(self, store: Store, obeyed: Quotas) -> None:
        self.by_entity: dict[Entity, dict[str, float]] = {}
        self._store = store
        self._obeyed = obeyed
        for root in (layout.CLIENT_QUOTAS, layout.USER_QUOTAS, layout.IP_QUOTAS):
            for path, node in store.tree(root).items():
                entity = entity_at(path)
                if entity is not None and node.data:
                    texts = layout.decode_config(node.data)
                    self._note(entity, {key: float(text) for key, text in texts.items()})

    def _note(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        if quotas:
            self.by_entity[entity] = dict(quotas)
        else:
            self.by_entity.pop(entity, None)
        self._obeyed.set_limits(entity, quotas)

    def replace(self, changed: Mapping[Entity, Mapping[str, float]]) -> None:
        """Give entities other quotas, which were checked before: all of them at once."""
        operations: dict[str, Operation] = {}
        for entity, quotas in changed.items():
            texts = {key: repr(value) for key, value in quotas.items()}
            self._write(quota_path(entity), layout.encode_config(texts), operations)
        if operations:
            self._store.commit(list(operations.values()))
        for entity, quotas in changed.items():
            self._note(entity, quotas)

    def _write(self, path: str, data: bytes, operations: dict[str, Operation]) -> None:
        """Write a node, and make those above it that are missing."""
        if layout.find(self._store, path) is not None:
            operations[path] = Set(path, data)
            return
        parent = parent_of(path)
        if parent not in operations and layout.find(self._store, parent) is None:
            self._write(parent, b"", operations)
        operations[path] = Create(path, data)
