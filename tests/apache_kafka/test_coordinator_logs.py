"""The logs of coordinators pass from one to the other.

Kafka's own tool reads what Ottla's coordinators have written for real clients, and Ottla's broker goes on where
Kafka's coordinators were, from their files.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.client import (
    Admin,
    Consumer,
    GroupDescription,
    GroupOffsets,
    Membership,
    NewTopic,
    Offset,
    Producer,
    TopicPartition,
)
from ottla.client.admin.transactions import TransactionDescription
from ottla.testing.local_broker import QUICK_SETTINGS, LocalBroker
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.apache_kafka.harness import ApacheKafka, run_tool
from tests.client.admin_groups_contract import Abort, describe, is_settled
from tests.client.consumer_contract import members
from tests.client.contract import eventually
from tests.conformance.script import Script

DUMP = "org.apache.kafka.tools.DumpLogSegments"
OFFSETS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}
FIRST, SECOND, SINK = TopicPartition("source", 0), TopicPartition("source", 1), TopicPartition("sink", 0)
PATTERN = "sou.*"


# What clients do, and what is then to be seen.


class Seen(NamedTuple):
    """What a broker tells of groups, offsets and transactions."""

    groups: dict[str, GroupDescription]
    offsets: dict[str, dict[TopicPartition, Offset]]
    transactions: dict[str, TransactionDescription]


def look(bootstrap: str) -> Seen:
    with Admin(bootstrap) as admin:
        names = [group.group_id for group in admin.list_groups()]
        return Seen(
            {group.group_id: group for group in admin.describe_groups(names)},
            {name: admin.list_group_offsets(name) for name in names},
            {
                one.transactional_id: admin.describe_transaction(one.transactional_id)
                for one in admin.list_transactions()
            },
        )


@contextmanager
def clients_at_work(bootstrap: str) -> Iterator[Seen]:
    """Groups of both protocols, offsets and transactions in all states; they stay as they are inside of it."""
    with ExitStack() as stack:
        admin = stack.enter_context(Admin(bootstrap))
        admin.create_topics([NewTopic("source", 2, 1), NewTopic("sink", 1, 1)])
        eventually(lambda: {topic.name for topic in admin.list_topics()}, lambda names: {"source", "sink"} <= names)
        commit_by_hand(admin)
        use_transactions(bootstrap, stack)
        join_by_pattern(bootstrap)
        running = stack.enter_context(members())
        for instance_id in ("i", None):
            running.start(lambda instance_id=instance_id: Consumer(  # type: ignore[misc]
                bootstrap, "source", group="classic", instance_id=instance_id, auto_commit=False
            ))  # fmt: skip
        for group, size in (("classic", 2), ("pattern", 1)):
            eventually(lambda group=group: describe(admin, group), lambda seen, size=size: is_settled(seen, size, 2))  # type: ignore[misc]
        yield look(bootstrap)


def commit_by_hand(admin: Admin) -> None:
    """Offsets that were replaced and deleted, and a group that was."""
    admin.alter_group_offsets("plain", {FIRST: Offset(3, "why"), SECOND: 4})
    admin.alter_group_offsets("plain", {FIRST: Offset(5, "later", 0)})
    admin.delete_group_offsets("plain", [SECOND])
    admin.alter_group_offsets("gone", {FIRST: 1})
    admin.delete_groups(["gone"])


def use_transactions(bootstrap: str, stack: ExitStack) -> None:
    """One is committed, then the next one of the same producer aborted; another one is left open."""
    with Producer(bootstrap, transactional_id="over") as producer:
        for offset, aborts in ((7, False), (8, True)):
            with suppress(Abort), producer.transaction() as transaction:
                producer.send("sink", b"v").result()
                transaction.send_offsets(offsets_to(offset))
                if aborts:
                    raise Abort
    producer = stack.enter_context(Producer(bootstrap, transactional_id="open"))
    transaction = stack.enter_context(producer.transaction())
    producer.send("sink", b"v").result()
    transaction.send_offsets(offsets_to(9))


def offsets_to(offset: int) -> GroupOffsets:
    return GroupOffsets(Membership("transactional"), {FIRST: Offset(offset, f"to {offset}")})


def join_by_pattern(bootstrap: str) -> None:
    """A member that leaves it to the broker which topics it reads; it joins and is not heard of again."""
    host, _, port = bootstrap.rpartition(":")
    epoch = 0
    owned: list[TopicPartitions] = []

    def beat() -> bool:
        """Whether the group knows that the member has what it shall have."""
        nonlocal epoch, owned
        request = ConsumerGroupHeartbeatRequest(
            group_id="pattern",
            member_id=str(uuid.UUID(int=7)),
            member_epoch=epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_regex=PATTERN,
            server_assignor="range",
            topic_partitions=owned,
        )
        answer = script.ask(request)
        if answer.error_code:  # the coordinator is not there yet
            return False
        is_known = bool(owned) and epoch == answer.member_epoch
        epoch = answer.member_epoch
        if answer.assignment is not None:
            rows = answer.assignment.topic_partitions
            owned = [TopicPartitions(topic_id=row.topic_id, partitions=row.partitions) for row in rows]
        return is_known

    with Script((host, int(port)), "pattern") as script:
        eventually(beat, bool)


def assert_all_is_there(seen: Seen) -> None:
    """That clients have done what they are here for, whatever the broker."""
    assert set(seen.groups) == {"classic", "pattern", "plain", "transactional"}
    assert {name: (group.type, group.state) for name, group in seen.groups.items()} == {
        "classic": ("classic", "Stable"),
        "pattern": ("consumer", "Stable"),
        "plain": ("classic", "Empty"),
        "transactional": ("classic", "Empty"),
    }
    assert {member.instance_id for member in seen.groups["classic"].members} == {"i", None}
    assert [member.topic_regex for member in seen.groups["pattern"].members] == [PATTERN]
    assert [member.assignment for member in seen.groups["pattern"].members] == [{FIRST, SECOND}]
    assert seen.offsets["plain"] == {FIRST: Offset(5, "later", 0)}
    assert seen.offsets["transactional"] == {FIRST: Offset(7, "to 7")}
    assert {name: one.state for name, one in seen.transactions.items()} == {"over": "CompleteAbort", "open": "Ongoing"}
    assert seen.transactions["open"].partitions == {SINK, TopicPartition(OFFSETS_TOPIC, 0)}


# Ottla's logs, read by Kafka's tool.


class Dumped(NamedTuple):
    """A record as the tool shows it: what its key says, and its value; or a marker."""

    producer_id: int
    kind: int
    key: dict[str, Any]
    value: dict[str, Any] | None
    marker: str | None


_BATCH = re.compile(r"^baseOffset: .* producerId: (-?\d+) ")
_RECORD = re.compile(r" key: (\{.*\}) payload: (<DELETE>|\{.*\})$")
_MARKER = re.compile(r" endTxnMarker: (\w+) ")


def dump(folder: Path, decoder: str) -> list[Dumped]:
    files = ",".join(sorted(str(file) for file in folder.glob("*.log")))
    found = []
    producer_id = -1
    for line in run_tool(DUMP, "--files", files, decoder).splitlines():
        if batch := _BATCH.search(line):
            producer_id = int(batch[1])
        elif marker := _MARKER.search(line):
            found.append(Dumped(producer_id, -1, {}, None, marker[1]))
        elif record := _RECORD.search(line):
            key = json.loads(record[1])
            value = None if record[2] == "<DELETE>" else json.loads(record[2])["data"]
            found.append(Dumped(producer_id, int(key["type"]), key["data"], value, None))
    return found


@pytest.fixture(scope="module")
def ottlas_logs(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Seen]:
    """What Ottla's coordinators wrote, copied while clients were at work, and what the broker told then."""
    folder = tmp_path_factory.mktemp("ottlas-logs")
    broker = LocalBroker(str(folder / "data"), settings=QUICK_SETTINGS | SETTINGS)
    try:
        with clients_at_work(broker.bootstrap) as seen:
            shutil.copytree(folder / "data", folder / "copy")
    finally:
        broker.abandon()
    assert_all_is_there(seen)
    return folder / "copy", seen


def test_kafkas_tool_reads_offsets_as_they_were_committed(ottlas_logs: tuple[Path, Seen]) -> None:
    folder, seen = ottlas_logs
    committed: dict[tuple[str, TopicPartition], Offset] = {}
    undecided: defaultdict[int, list[Dumped]] = defaultdict(list)
    deletions = 0

    def apply(record: Dumped) -> None:
        place = record.key["group"], TopicPartition(record.key["topic"], record.key["partition"])
        if record.value is None:
            del committed[place]
        else:
            committed[place] = Offset(record.value["offset"], record.value["metadata"], record.value["leaderEpoch"])

    for record in dump(folder / f"{OFFSETS_TOPIC}-0", "--offsets-decoder"):
        if record.marker is not None:
            ended = undecided.pop(record.producer_id)
            for one in ended if record.marker == "COMMIT" else ():
                apply(one)
        elif record.kind == 1 and record.producer_id >= 0:
            undecided[record.producer_id].append(record)
        elif record.kind == 1:
            deletions += record.value is None
            apply(record)
    told = {(group, place): one for group, offsets in seen.offsets.items() for place, one in offsets.items()}
    assert committed == told
    assert deletions == 2
    [left] = undecided[seen.transactions["open"].producer_id]
    assert left.value is not None
    assert (left.value["offset"], left.value["metadata"]) == (9, "to 9")
    assert set(undecided) == {seen.transactions["open"].producer_id}


def test_kafkas_tool_reads_groups_as_they_are(ottlas_logs: tuple[Path, Seen]) -> None:
    folder, seen = ottlas_logs
    last: dict[tuple[int, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for record in dump(folder / f"{OFFSETS_TOPIC}-0", "--offsets-decoder"):
        if record.kind > 1 and record.value is not None:
            group = record.key.get("groupId") or record.key["group"]
            which = record.key.get("memberId") or record.key.get("regularExpression") or ""
            last[record.kind, group][which] = record.value
    [classic] = last[2, "classic"].values()
    described = seen.groups["classic"]
    assert (classic["protocolType"], classic["protocol"]) == ("consumer", described.assignor)
    assert {(one["memberId"], one["groupInstanceId"], one["clientHost"]) for one in classic["members"]} == {
        (member.member_id, member.instance_id, f"/{member.host}") for member in described.members
    }
    described = seen.groups["pattern"]
    [member] = described.members
    assert [one["epoch"] for one in last[3, "pattern"].values()] == [described.epoch]
    assert last[5, "pattern"][member.member_id]["subscribedTopicRegex"] == PATTERN
    assert last[5, "pattern"][member.member_id]["serverAssignor"] == described.assignor == "range"
    assert last[5, "pattern"][member.member_id]["classicMemberMetadata"] is None
    assert [one["assignmentEpoch"] for one in last[6, "pattern"].values()] == [described.assignment_epoch]
    assert [row["partitions"] for row in last[7, "pattern"][member.member_id]["topicPartitions"]] == [[0, 1]]
    assert last[8, "pattern"][member.member_id]["memberEpoch"] == member.epoch
    assert [row["partitions"] for row in last[8, "pattern"][member.member_id]["assignedPartitions"]] == [[0, 1]]
    assert last[16, "pattern"][PATTERN]["topics"] == ["source"]


def test_kafkas_tool_reads_transactions_as_they_went(ottlas_logs: tuple[Path, Seen]) -> None:
    folder, seen = ottlas_logs
    steps: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in dump(folder / f"{TRANSACTIONS_TOPIC}-0", "--transaction-log-decoder"):
        assert record.value is not None
        steps[record.key["transactionalId"]].append(record.value)
    assert set(steps) == set(seen.transactions)
    told: list[int] = [step["transactionStatus"] for step in steps["over"]]
    assert [state for at, state in enumerate(told) if told[at - 1 : at] != [state]] == [0, 1, 2, 4, 1, 3, 5]
    for name, transaction in seen.transactions.items():
        last = steps[name][-1]
        partitions = frozenset(
            (row["topic"], index) for row in last["transactionPartitions"] or () for index in row["partitionIds"]
        )
        assert (last["producerId"], last["producerEpoch"], last["transactionTimeoutMs"], partitions) == (
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.timeout_ms,
            transaction.partitions,
        )
    assert steps["open"][-1]["transactionStatus"] == 1
    assert steps["open"][-1]["transactionStartTimestampMs"] == seen.transactions["open"].started_ms


# Kafka's logs, taken over by Ottla.


def test_a_broker_goes_on_where_kafkas_coordinators_were(
    kafka_classpath: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ApacheKafka(tmp_path / "kafka", SETTINGS) as kafka:
        with clients_at_work(kafka.bootstrap) as before:
            shutil.copytree(kafka.log_dir, tmp_path / "copy")
        assert_all_is_there(before)
        with Admin(kafka.bootstrap) as admin:
            topics = {topic.name: topic.topic_id for topic in admin.list_topics()}
    folder = tmp_path / "ottla"
    make_topics(folder, topics, monkeypatch)
    for copied in (tmp_path / "copy").glob("*-[0-9]"):
        shutil.copytree(copied, folder / copied.name, dirs_exist_ok=True)
    broker = LocalBroker(str(folder), settings=QUICK_SETTINGS | SETTINGS)
    try:
        assert look(broker.bootstrap) == before
        assert_it_goes_on(broker, before)
    finally:
        broker.abandon()


def make_topics(folder: Path, topics: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """A data folder that knows of topics with these ids, and has nothing in them yet."""
    broker = LocalBroker(str(folder), settings=QUICK_SETTINGS | SETTINGS)
    for name, topic_id in topics.items():
        monkeypatch.setattr(broker._broker.topic_requests, "new_topic_id", lambda topic_id=topic_id: topic_id)
        broker.topic(name, partitions=2 if name == "source" else 1)
    broker.abandon()


def assert_it_goes_on(broker: LocalBroker, before: Seen) -> None:
    """The transaction that was open is aborted by its next producer, and the group without members commits."""
    with Producer(broker.bootstrap, transactional_id="open") as producer, Admin(broker.bootstrap) as admin:
        with producer.transaction() as transaction:
            producer.send("sink", b"next").result()
            transaction.send_offsets(offsets_to(10))
        after = eventually(lambda: admin.describe_transaction("open"), lambda one: one.state == "CompleteCommit")
        assert after.producer_id == before.transactions["open"].producer_id
        assert after.producer_epoch > before.transactions["open"].producer_epoch
        assert admin.list_group_offsets("transactional", must_be_stable=True) == {FIRST: Offset(10, "to 10")}
        assert admin.alter_group_offsets("plain", {FIRST: 6}) == [FIRST]
    assert broker.values("sink") == [b"v", b"next"]
