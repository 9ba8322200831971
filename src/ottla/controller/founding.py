"""What a store must hold before a cluster can live in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.controller import layout
from ottla.controller.store import Create, Node, Operation


def founding_operations(
    nodes: Mapping[str, Node], broker_config: Mapping[str, str], new_cluster_id: Callable[[], str]
) -> list[Operation]:
    """What is missing in a store: all of it where the cluster is new, nothing where somebody was here before."""
    operations = layout.prepare_operations(nodes)
    if layout.CLUSTER_ID not in nodes:
        operations += [
            Create(layout.CLUSTER_ID, layout.encode_cluster_id(new_cluster_id())),
            Create(layout.broker_config_path(None), layout.encode_config(broker_config)),
        ]
    return operations
