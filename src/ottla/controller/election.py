"""Becoming the controller: what is committed to take the office, and what holds as long as nobody else takes it.

Whoever has created `/controller` and raised `/controller_epoch` in one commit decides from then on. Everything it
commits checks that the epoch's node is as it left it, so that one who lost the office without knowing changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.controller import layout
from ottla.controller.store import Check, Create, Delete, Node, Operation, Set


class Office(NamedTuple):
    """The right to decide, in one epoch."""

    epoch: int
    version: int  # of the node that keeps the epoch

    @property
    def check(self) -> Check:
        """Goes with all that is decided."""
        return Check(layout.CONTROLLER_EPOCH, self.version)


class Claim(NamedTuple):
    office: Office
    operations: list[Operation]


def claim(epoch_node: Node | None, node_id: int, now_ms: int, *, dead: Node | None = None) -> Claim:
    """What takes the office. `dead`: the node of one who had it, and is gone; its successor may be quicker."""
    data = layout.encode_controller(node_id, now_ms)
    operations: list[Operation] = [] if dead is None else [Delete(layout.CONTROLLER, dead.version)]
    operations.append(Create(layout.CONTROLLER, data, is_ephemeral=True))
    if epoch_node is None:
        office = Office(1, 0)
        operations.append(Create(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(1)))
    else:
        office = Office(layout.decode_controller_epoch(epoch_node.data) + 1, epoch_node.version + 1)
        raised = layout.encode_controller_epoch(office.epoch)
        operations.append(Set(layout.CONTROLLER_EPOCH, raised, epoch_node.version))
    return Claim(office, operations)
