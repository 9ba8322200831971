"""Very large requests to coordinators, which are dealt with in parts: what happens between two of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.coordinators.asked_offsets import COMMITTED_AT_ONCE
from ottla.broker.handlers.offset_delete import DELETED_AT_ONCE
from ottla.coordinator.offsets import removal
from ottla.coordinator.offsets.removal import OffsetRemoval
from ottla.coordinator.operation import Operation
from ottla.testing.simulated_client import SimulatedClient
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.transactional_client import TOPIC, VERSION_1, VERSION_2, TransactionalClient
from tests.sim.simulated_broker import SimulatedBroker

GROUP = "g"
PARTITIONS = 4 * COMMITTED_AT_ONCE
LAST_WITH_NAMES = 9


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SimulatedBroker]:
    broker = SimulatedBroker(tmp_path, offsets_topic_num_partitions="3", transaction_state_log_num_partitions="3")
    broker.create(TOPIC, partitions=PARTITIONS)
    yield broker
    broker.stop()


def commit_request(offset: int) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index in range(PARTITIONS)
    ]
    return OffsetCommitRequest(
        group_id=GROUP, member_id="", topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
    )


def send_commit(client: SimulatedClient, offset: int) -> int:
    return client.send(commit_request(offset), LAST_WITH_NAMES)


def codes_of(client: SimulatedClient, number: int) -> list[ErrorCode]:
    return [ErrorCode(row.error_code) for row in client.answer(number).topics[0].partitions]


def fetch_request(*groups: str) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(PARTITIONS)))]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=topics) for name in groups])


def offsets(client: SimulatedClient) -> list[int]:
    """Of all partitions."""
    answer = client.ask(fetch_request(GROUP), LAST_WITH_NAMES)
    return [row.committed_offset for row in answer.groups[0].topics[0].partitions]


def run_until_some_are_committed(broker: SimulatedBroker) -> int:
    """How many offsets of the group are committed, when a part of them is and another is not."""

    def count() -> int:
        return sum(len(shard.machine.offsets.of_group(GROUP)) for shard in broker.broker.groups.shards())

    broker.system.run_until(broker.loop, lambda: count() > 0, 60)
    assert 0 < count() < PARTITIONS
    return count()


def test_a_closed_connection_ends_a_commit_between_two_parts(broker: SimulatedBroker) -> None:
    client = broker.client()
    send_commit(client, 5)
    count = run_until_some_are_committed(broker)
    for connection in list(broker.broker.frontend.servers[0].connections):
        connection.close("a test closed it")
    broker.advance(1)
    assert sorted(set(offsets(broker.client()))) == [-1, 5]
    assert offsets(broker.client()).count(5) <= count + COMMITTED_AT_ONCE
    other = broker.client()
    assert set(codes_of(other, send_commit(other, 6))) == {ErrorCode.NONE}
    assert set(offsets(other)) == {6}


def test_a_group_deleted_between_two_parts_of_a_commit_begins_anew(broker: SimulatedBroker) -> None:
    """Offsets alone make a group, so the rest of the commit makes one, as the same commits one by one would."""
    client, admin = broker.client(), broker.client()
    number = send_commit(client, 5)
    run_until_some_are_committed(broker)
    deleted = admin.ask(DeleteGroupsRequest(groups_names=[GROUP])).results[0].error_code
    assert deleted == ErrorCode.NONE
    assert set(codes_of(client, number)) == {ErrorCode.NONE}
    found = offsets(admin)
    assert set(found) == {-1, 5}
    assert found[-1] == 5


def test_a_group_deleted_between_two_parts_of_a_deletion_is_told(broker: SimulatedBroker) -> None:
    client, admin = broker.client(), broker.client()
    codes_of(client, send_commit(client, 5))
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in range(PARTITIONS)]
    topics = [OffsetDeleteRequestTopic(name=TOPIC, partitions=partitions)]
    assert PARTITIONS > 2 * DELETED_AT_ONCE
    deleting = client.send(OffsetDeleteRequest(group_id=GROUP, topics=topics))
    [shard] = [shard for shard in broker.broker.groups.shards() if GROUP in shard.machine.groups]
    del shard.machine.groups[GROUP]  # as a request between two steps would
    assert client.answer(deleting).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert admin.ask(DeleteGroupsRequest(groups_names=[GROUP])).results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_many_offsets_is_deleted_in_parts(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = broker.client()
    codes_of(client, send_commit(client, 5))
    left: list[int] = []

    delete_group = OffsetRemoval.delete_group

    def delete_some(removal: OffsetRemoval, operation: Operation, group_id: str) -> ErrorCode | None:
        code = delete_group(removal, operation, group_id)
        left.append(len(removal._machine.offsets.of_group(GROUP)))
        return code

    monkeypatch.setattr(OffsetRemoval, "delete_group", delete_some)
    results = client.ask(DeleteGroupsRequest(groups_names=[GROUP, "nobody", GROUP])).results
    assert [(result.group_id, result.error_code) for result in results] == [
        (GROUP, ErrorCode.NONE),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert PARTITIONS - removal.DELETED_AT_ONCE in left
    assert set(offsets(client)) == {-1}
    assert client.ask(DeleteGroupsRequest(groups_names=[GROUP])).results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_are_fetched_as_they_were_at_one_time(broker: SimulatedBroker) -> None:
    client, other = broker.client(), broker.client()
    codes_of(client, send_commit(client, 5))
    fetching = client.send(fetch_request(*[GROUP] * 3), LAST_WITH_NAMES)
    committing = send_commit(other, 6)
    for group in client.answer(fetching).groups:
        found = [row.committed_offset for row in group.topics[0].partitions]
        assert found == sorted(found, reverse=True)  # parts of the commit from the first on, or nothing of it
    assert set(codes_of(other, committing)) == {ErrorCode.NONE}


def test_a_commit_while_the_coordinator_loads_is_refused_part_by_part(broker: SimulatedBroker) -> None:
    client = broker.client()
    assert set(codes_of(client, send_commit(client, 5))) == {ErrorCode.NONE}
    number = send_commit(client, 6)
    broker.system.run_until(broker.loop, lambda: 6 in known_offsets(broker), 60)
    groups = broker.broker.groups
    for shard in groups.shards():
        shard.unload(ErrorCode.NOT_COORDINATOR)  # as after a failed write
        groups.forget(shard)
    codes = codes_of(client, number)
    assert codes[0] == ErrorCode.NONE
    assert set(codes[COMMITTED_AT_ONCE * 2 :]) <= {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
    broker.system.run_until(broker.loop, lambda: not groups.is_loading, 60)
    for offset, code in zip(offsets(client), codes, strict=True):
        assert offset == (6 if code is ErrorCode.NONE else 5)


def known_offsets(broker: SimulatedBroker) -> set[int]:
    shards = broker.broker.groups.shards()
    return {known.value.offset for shard in shards for known in shard.machine.offsets.of_group(GROUP).values()}


def test_a_broker_that_stops_in_the_middle_keeps_what_it_took(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    broker = SimulatedBroker(folder, offsets_topic_num_partitions="3")
    broker.create(TOPIC, partitions=PARTITIONS)
    client = broker.client()
    send_commit(client, 5)
    run_until_some_are_committed(broker)
    broker.stop()
    successor = SimulatedBroker(folder, files=broker.files, offsets_topic_num_partitions="3")
    successor.system.run_until(successor.loop, lambda: not successor.broker.groups.is_loading, 60)
    found = offsets(successor.client())
    assert set(found) == {-1, 5}
    assert found == sorted(found, reverse=True)  # whole parts, from the first on
    successor.stop()


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_is_not_ended_between_two_parts_of_its_commit(
    broker: SimulatedBroker, version: int, is_commit: bool
) -> None:
    """The end is sent right behind the offsets, without waiting for their answer."""
    client = TransactionalClient(broker, version=version)
    producer_id, epoch = client.init()
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata="")
        for index in range(PARTITIONS)
    ]
    request = TxnOffsetCommitRequest(
        transactional_id=client.transactional_id,
        group_id=GROUP,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
    )
    if version == VERSION_1:
        assert client.add_offsets(GROUP) == 0
    committing = client.connection.send(request, 5 if version == VERSION_2 else 3)
    ending = client.connection.send(client.end_request(is_commit=is_commit), client.end_version)
    assert set(codes_of(client.connection, committing)) == {ErrorCode.NONE}
    assert client.connection.answer(ending).error_code == 0
    broker.advance(1)
    assert set(offsets(broker.client())) == {7 if is_commit else -1}
