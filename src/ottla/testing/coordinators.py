"""What a test makes happen inside the coordinators: rebalances, members thrown out, a producer that is replaced."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.broker import Broker
from ottla.broker.coordinators.shard import Shard
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.rebalance import rebalance as rebalance_classic
from ottla.coordinator.classic.rebalance import session_over
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.group_machine import GroupMachine
from ottla.coordinator.operation import Operation, Reply
from ottla.coordinator.transactions.machine import Identity
from ottla.wire.errors import ErrorCode

FENCING_TIMEOUT_MS = 60_000


def rebalance(broker: Broker, group_id: str) -> None:
    """Let all members of a classic group join again, or begin another epoch of a consumer group."""

    def begin(operation: Operation) -> None:
        group = machine.groups[group_id]
        if isinstance(group, ClassicGroup):
            rebalance_classic(operation, group, machine.settings())
        elif isinstance(group, ConsumerGroup):
            group.bump_if_changed(operation, is_due=True)

    shard, machine = _shard_of(broker, group_id)
    shard.run(begin)


def expel(broker: Broker, group_id: str, client_id: str) -> None:
    """End the sessions of a client's members, as if nothing had been heard of them for too long."""

    def end(operation: Operation) -> None:
        group = machine.groups[group_id]
        if isinstance(group, ClassicGroup):
            for member_id in [name for name, member in group.members.items() if member.client.client_id == client_id]:
                session_over(operation, group, member_id, machine.settings())
        elif isinstance(group, ConsumerGroup):
            leaving = [member for member in group.members.values() if member.profile.client_id == client_id]
            machine.membership.remove(operation, group, leaving)

    shard, machine = _shard_of(broker, group_id)
    count = machine.groups[group_id].member_count
    shard.run(end)
    if machine.groups[group_id].member_count == count:
        raise ValueError(f"group {group_id!r} has no member of a client {client_id!r}")


def _shard_of(broker: Broker, group_id: str) -> tuple[Shard[GroupMachine], GroupMachine]:
    for shard in broker.groups.shards():
        found = shard.machine.groups.get(group_id)
        if found is not None and not found.is_empty:
            return shard, shard.machine
    raise ValueError(f"there is no group {group_id!r} with members")


def take_over(broker: Broker, transactional_id: str, told: Callable[[ErrorCode], None]) -> None:
    """Ask for the transactional id, as a second instance of its producer would, once."""
    reply = Reply(lambda identity: told(identity.code), Identity)
    broker.transactions.submit(
        transactional_id,
        reply,
        lambda machine, operation: machine.init_producer_id(
            operation, reply, transactional_id, FENCING_TIMEOUT_MS, None
        ),
    )
