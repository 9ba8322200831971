"""What a coordinator is asked to keep and no batch of its topic can hold."""

from __future__ import annotations

from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import (
    commit,
    describe_groups,
    fetch_offsets,
    heartbeat,
    join,
    subscription,
    sync,
)
from tests.conformance.members import stable_group
from tests.conformance.script import Script
from tests.conformance.transaction_requests import add_offsets, commit_offsets, end, ready_producer

exchanges = Exchanges("large_writes")

LARGE_BYTES = 1_100_000
LONG_NOTE = "x" * 4_000  # what is allowed for one offset
OFFSETS = [(0, number) for number in range(LARGE_BYTES // len(LONG_NOTE))]


@exchanges.versions((2, 9))
def offsets(script: Script, version: int) -> None:
    group, topic = script.group(), script.topic()
    script.send(commit(group, topic, (0, 7)))
    script.send(commit(group, topic, *OFFSETS, metadata=LONG_NOTE), version)
    script.send(fetch_offsets(group, {topic: [0]}))


@exchanges.one
def offsets_of_a_member(script: Script) -> None:
    group, topic = script.group(), script.topic()
    [member] = stable_group(script, group, "a")
    request = commit(group, topic, *OFFSETS, metadata=LONG_NOTE, generation=member.generation, member_id=member.id)
    script.send(request, 9)
    script.send(heartbeat(group, member.generation, member.id), on="a")


@exchanges.one
def offsets_of_a_transaction(script: Script) -> None:
    producer, group, topic = ready_producer(script), script.group(), script.topic()
    script.send(add_offsets(producer, group), 3)
    script.send(commit_offsets(producer, group, topic, *OFFSETS, metadata=LONG_NOTE), 3)
    script.send(end(producer), 3)
    script.send(fetch_offsets(group, {topic: [0]}))


@exchanges.one
def an_assignment(script: Script) -> None:
    group = script.group()
    member_id = script.ask(join(group), 9, on="a").member_id
    generation = script.ask(join(group, member_id), 9, on="a").generation_id
    script.send(sync(group, generation, member_id, {member_id: bytes(LARGE_BYTES)}), on="a")
    script.send(heartbeat(group, generation, member_id), on="a")
    script.send(describe_groups(group))


@exchanges.one
def a_subscription(script: Script) -> None:
    group = script.group()
    protocols = {"range": subscription("somewhere") + bytes(LARGE_BYTES)}
    member_id = script.ask(join(group, protocols=protocols), 9, on="a").member_id
    generation = script.ask(join(group, member_id, protocols=protocols), 9, on="a").generation_id
    script.send(sync(group, generation, member_id), on="a")
    script.send(heartbeat(group, generation, member_id), on="a")
