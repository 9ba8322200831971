"""Members of classic groups, and groups of them made ready for an exchange. A member speaks on its own connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.wire.messages.describe_groups import DescribeGroupsResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tests.conformance.group_requests import delete_groups, describe_groups, join, sync
from tests.conformance.script import PreparationFailed, Script


class Member(NamedTuple):
    connection: str
    id: str
    generation: int
    instance: str | None = None


def stable_group(
    script: Script, group: str, *connections: str, instances: Sequence[str | None] = (), shared: bytes | None = None,
    **options: Any,
) -> list[Member]:  # fmt: skip
    """A group whose members have joined one after the other and have their assignments; the first is the leader.

    `shared`: what each gets, unless it is something of its own.
    """
    members: list[Member] = []
    for number, connection in enumerate(connections):
        instance = instances[number] if number < len(instances) else None
        members = with_another(script, group, members, Member(connection, "", 0, instance), shared, **options)
    return members


def with_another(
    script: Script, group: str, members: list[Member], another: Member, shared: bytes | None = None, **options: Any
) -> list[Member]:
    """Another member joins, the others join again, and all get their share."""
    if another.instance is None:
        another = another._replace(id=script.ask(join(group, **options), 9, on=another.connection).member_id)
    pending = [script.post(rejoin(group, another, **options), 9, on=another.connection)]
    if members:
        await_state(script, group, "PreparingRebalance", len(members) + 1)
    pending = [
        *(script.post(rejoin(group, member, **options), 9, on=member.connection) for member in members),
        *pending,
    ]
    answers = [script.take(one) for one in pending]
    members = [
        member._replace(id=answer.member_id, generation=answer.generation_id)
        for member, answer in zip([*members, another], answers, strict=True)
    ]
    share(script, group, members, answers[0], shared)
    return members


def rejoin(group: str, member: Member, **options: Any) -> JoinGroupRequest:
    return join(group, member.id, instance=member.instance, **options)


def share(
    script: Script, group: str, members: list[Member], chosen: JoinGroupResponse, shared: bytes | None = None
) -> None:
    shares = {member.id: shared or f"share of {member.connection}".encode() for member in members}
    for member in members:
        request = sync(
            group,
            member.generation,
            member.id,
            shares if member is members[0] else {},
            instance=member.instance,
            protocol=chosen.protocol_name,
            protocol_type=chosen.protocol_type,
        )
        if script.ask(request, on=member.connection).error_code:
            raise PreparationFailed(f"{group} did not become stable")


def await_state(script: Script, group: str, state: str, members: int | None = None) -> None:
    """Returns when a group is in a state, with as many members."""

    def is_so(answer: DescribeGroupsResponse) -> bool:
        [described] = answer.groups
        return described.group_state == state and members in (None, len(described.members))

    script.ask_until(describe_groups(group), 5, until=is_so)


def without_a_group_of_no_name(script: Script) -> None:
    """The one name that exchanges share."""
    script.group()
    script.ask(delete_groups(""))
