"""`ottla topics` and `ottla configs` against a broker."""

import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import ottla.testing
from ottla.cli import topics_grow
from ottla.cli.main import main
from ottla.client import LATEST, Admin, NewTopic, Producer, TopicPartition


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A broker of the test's own, named by the environment."""
    with ottla.testing.broker() as broker:
        monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
        yield broker.bootstrap


Captured = pytest.CaptureFixture[str]


def run(capsys: Captured, *arguments: str, code: int = 0, says: str = "") -> list[str]:
    """The lines that a command prints; `says` must be among what it complains of."""
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert says in err
    assert bool(err) == bool(says)
    return out.splitlines()


def rows(capsys: Captured, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(capsys, *arguments, "--json")]


def test_a_topic_from_its_creation_to_its_end(bootstrap: str, capsys: Captured) -> None:
    assert run(capsys, "topics", "list") == []
    assert run(capsys, "topics", "create", "orders", "--partitions", "2", "--replication-factor", "1") == [
        "orders (2 partitions, 1 replica): created"
    ]
    assert run(capsys, "topics", "list") == ["orders"]
    assert run(capsys, "topics", "expand", "orders", "--partitions", "3", "--dry-run") == [
        "orders: can have 3 partitions"
    ]
    assert run(capsys, "topics", "expand", "orders", "--partitions", "3") == ["orders: has 3 partitions"]
    [heading, columns, *partitions, empty] = run(capsys, "topics", "describe", "orders", "--offsets")
    assert heading.startswith("orders  id ")
    assert heading.endswith("  3 partitions  1 replica")
    assert columns.split("  ")[-2:] == ["start offset", "end offset"]
    assert [line.split()[0] for line in partitions] == ["0", "1", "2"]
    assert empty == ""
    assert run(capsys, "topics", "delete", "orders") == ["orders: deleted"]
    assert run(capsys, "topics", "list") == []


def test_the_same_as_json(bootstrap: str, capsys: Captured) -> None:
    [created] = rows(capsys, "topics", "create", "orders", "--partitions", "2")
    assert created == {"name": "orders", "topic_id": created["topic_id"], "partitions": 2, "replication_factor": 1}
    [listed] = rows(capsys, "topics", "list")
    assert listed["topic_id"] == created["topic_id"]
    [described] = rows(capsys, "topics", "describe", "--offsets")
    assert {"name", "topic_id", "is_internal", "partition_count", "replication_factor", "partitions"} == set(described)
    assert [partition["end_offset"] for partition in described["partitions"]] == [0, 0]
    assert rows(capsys, "topics", "expand", "orders", "--partitions", "4") == [{"name": "orders", "partitions": 4}]
    altered = {"type": "topic", "name": "orders", "changes": 1}
    assert rows(capsys, "topics", "alter", "orders", "--set", "retention.ms=1000") == [altered]
    assert rows(capsys, "topics", "delete", "orders") == [{"name": "orders"}]


def test_what_is_refused_is_told_and_the_rest_is_done(bootstrap: str, capsys: Captured) -> None:
    run(capsys, "topics", "create", "a")
    created = run(capsys, "topics", "create", "a", "b", code=1, says="ottla: topic a: Topic 'a' already exists.")
    assert [line.split()[0] for line in created] == ["b"]
    assert len(run(capsys, "topics", "create", "a", "c", "--if-not-exists")) == 1
    run(capsys, "topics", "describe", "x", code=1, says="ottla: topic x: there is no such topic")
    assert run(capsys, "topics", "delete", "x", "b", code=1, says="ottla: topic x: ") == ["b: deleted"]
    assert run(capsys, "topics", "delete", "x", "c", "--if-exists") == ["c: deleted"]
    run(capsys, "topics", "expand", "a", "--partitions", "1", code=1, says="(INVALID_PARTITIONS)")
    run(capsys, "topics", "create", "a/b", code=1, says="(INVALID_TOPIC_EXCEPTION)")


def test_a_dry_run_changes_nothing(bootstrap: str, capsys: Captured) -> None:
    assert "can be created" in run(capsys, "topics", "create", "orders", "--dry-run")[0]
    assert run(capsys, "topics", "list") == []
    wrong = ("topics", "create", "orders", "--dry-run", "--config", "retention.ms=soon")
    run(capsys, *wrong, code=1, says="(INVALID_CONFIG)")


def test_configurations(bootstrap: str, capsys: Captured) -> None:
    run(capsys, "topics", "create", "orders", "--config", "retention.ms=1000", "--config", "cleanup.policy=compact")

    def set_here() -> dict[str, str]:
        described = rows(capsys, "configs", "describe", "--topic", "orders")
        return {row["name"]: row["value"] for row in described if row["source"] == "topic"}

    assert set_here() == {"retention.ms": "1000", "cleanup.policy": "compact"}
    alter = ("configs", "alter", "--topic", "orders")
    changes = ("--set", "max.message.bytes=77", "--unset", "retention.ms", "--append", "cleanup.policy=delete")
    assert run(capsys, *alter, *changes, "--dry-run") == ["topic orders: can be altered"]
    assert run(capsys, *alter, *changes) == ["topic orders: altered"]
    assert set_here() == {"max.message.bytes": "77", "cleanup.policy": "compact,delete"}
    run(capsys, *alter, "--subtract", "cleanup.policy=compact")
    assert set_here()["cleanup.policy"] == "delete"
    run(capsys, *alter, "--set", "max.message.bytes=many", code=1, says="ottla: topic orders: ")
    run(capsys, *alter, code=2, says="nothing to change")


def test_configurations_that_are_shown(bootstrap: str, capsys: Captured) -> None:
    run(capsys, "topics", "create", "orders", "--config", "retention.ms=1000")
    everything = {row["name"] for row in rows(capsys, "configs", "describe", "--topic", "orders", "--all")}
    assert {"retention.ms", "segment.bytes"} <= everything
    [heading, line] = run(capsys, "configs", "describe", "--topic", "orders", "retention.ms")
    assert heading.split() == ["name", "value", "source", "type"]
    assert line.split() == ["retention.ms", "1000", "topic", "long"]
    [row] = rows(capsys, "configs", "describe", "--broker", "1", "num.partitions")
    assert row["name"] == "num.partitions"
    run(capsys, "configs", "describe", "--topic", "orders", "x", code=1, says="there is no configuration x")
    run(capsys, "configs", "describe", "--topic", "nothing", code=1, says="ottla: topic nothing: ")


@pytest.mark.parametrize("arguments", [["topics", "list"], ["configs", "describe", "--topic", "t"]])
def test_nobody_listens(capsys: Captured, arguments: list[str]) -> None:
    says = "ottla: cannot reach a broker at 127.0.0.1:1: connection refused\n"
    run(capsys, *arguments, "--bootstrap", "127.0.0.1:1", code=1, says=says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["topics"], "VERB; see 'ottla topics --help'"),
        (["topics", "create"], "TOPIC; see 'ottla topics create --help'"),
        (["topics", "create", "t", "--partitions", "0"], "'0' is not a number above 0"),
        (["topics", "create", "t", "--config", "x"], "'x' is not NAME=VALUE"),
        (["topics", "expand", "t"], "--partitions"),
        (["configs", "describe"], "one of the arguments --topic --broker is required"),
        (["configs", "describe", "--topic", "t", "--broker", "1"], "not allowed with argument"),
        (["configs", "describe", "--broker", "one"], "'one' is no id"),
        (["topics", "list", "--bootstrap", "a:b"], "'a:b' is no address"),
    ],
)
def test_wrong_usage(capsys: Captured, arguments: list[str], says: str) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert says in err


@pytest.mark.parametrize(
    "arguments",
    [
        *(["topics", verb] for verb in ("create", "list", "describe", "alter", "delete", "expand")),
        *(["configs", verb] for verb in ("describe", "alter")),
    ],
)
def test_every_help_has_examples(arguments: list[str], capsys: Captured) -> None:
    lines = run(capsys, *arguments, "--help")
    assert "examples:" in lines
    assert max(map(len, lines)) <= 100


def test_the_cluster_s_own_topics_are_deleted_by_force_only(bootstrap: str, capsys: Captured) -> None:
    run(capsys, "topics", "create", "orders")
    with Admin(bootstrap) as admin:
        admin.alter_group_offsets("g", {TopicPartition("orders", 0): 0})
    delete = ("topics", "delete", "orders", "__consumer_offsets")
    assert run(capsys, *delete, code=2, says="with it go all groups and their committed offsets; give --force") == []
    assert run(capsys, "topics", "list", "--internal") == ["__consumer_offsets", "orders"]
    assert run(capsys, *delete, "--force") == ["orders: deleted", "__consumer_offsets: deleted"]


def test_topics_are_moved_and_their_leaders_elected(bootstrap: str, capsys: Captured) -> None:
    run(capsys, "topics", "create", "orders", "--partitions", "2", "--replication", "1")
    assert run(capsys, "topics", "reassign") == ["no partition is on its way"]
    moved = ["orders-0: moved to 1", "orders-1: moved to 1"]
    assert run(capsys, "topics", "reassign", "orders", "--to", "1", "--wait", "30") == moved
    assert rows(capsys, "topics", "reassign", "orders", "--to", "1", "--partition", "1") == [
        {"name": "orders", "partition": 1}
    ]
    assert run(capsys, "topics", "elect") == ["every leader is the right one already"]
    assert run(capsys, "topics", "elect", "orders", "--unclean") == ["every leader is the right one already"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("reassign", "orders", "--to", "7"), 1, "INVALID_REPLICA_ASSIGNMENT"),
        (("reassign", "orders", "--cancel"), 1, "NO_REASSIGNMENT_IN_PROGRESS"),
        (("reassign", "orders", "--to", "1,1"), 2, "not a list of different brokers"),
        (("reassign", "orders", "--to", "1", "--cancel"), 2, "exclude each other"),
        (("reassign", "orders", "--to", "1", "--replication", "2"), 2, "--to names only 1 broker"),
        (("reassign", "orders", "--replication", "2"), 2, "which brokers"),
        (("reassign", "orders", "--to", "1", "--partition", "9"), 1, "orders has 1 partition, and no 9"),
        (("reassign", "--to", "1"), 2, "name the topics"),
        (("reassign", "orders", "--throttle", "1000"), 2, "--throttle: say with --to"),
        (("reassign", "--verify"), 2, "--verify: name topics"),
        (("reassign", "orders", "--to", "7", "--throttle", "1000"), 1, "INVALID_REPLICA_ASSIGNMENT"),
        (("reassign", "nowhere", "--to", "1"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("elect", "nowhere"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("elect", "--unclean"), 2, "name the topics"),
        (("elect", "--partition", "0"), 2, "name the topic"),
    ],
)
def test_what_cannot_be_moved_or_elected(
    bootstrap: str, capsys: Captured, arguments: tuple[str, ...], code: int, says: str
) -> None:
    run(capsys, "topics", "create", "orders")
    assert run(capsys, "topics", *arguments, code=code, says=says) == []


def test_the_cluster_of_one_broker(bootstrap: str, capsys: Captured) -> None:
    run(capsys, "topics", "create", "orders", "--partitions", "2")
    [cluster] = rows(capsys, "cluster", "status")
    assert cluster == {
        "cluster_id": cluster["cluster_id"],
        "controller": 1,
        "brokers": [{"id": 1, "address": bootstrap, "rack": None, "leads": 2, "replicas": 2}],
        "topics": 1,
        "partitions": 2,
        "offline": [],
        "under_replicated": [],
        "moving": [],
    }
    [heading, columns, broker, state] = run(capsys, "cluster", "status", "--wait", "30")
    assert heading == f"cluster {cluster['cluster_id']}  1 topic  2 partitions"
    assert columns.split() == ["broker", "address", "rack", "leads", "replicas"]
    assert broker.split() == ["1", bootstrap, "-", "2", "2", "controller"]
    assert state == "every replica is in sync"


def test_a_topic_that_grows_in_order(bootstrap: str, capsys: Captured) -> None:
    run(capsys, "topics", "create", "orders", "--partitions", "2")
    with Producer(bootstrap) as producer:
        for number in range(40):
            producer.send("orders", b"v", key=b"%d" % number)
    grow = ("topics", "expand", "orders", "--in-order", "--quiet-ms", "0")
    run(capsys, *grow, "--to", "3", code=1, says="in order it can only grow to a multiple of that, not to 3")
    run(capsys, *grow, "--to", "20002", code=1, says="One request makes 10000 partitions at most.")
    run(capsys, *grow, "--to", "4", "--partitioner", "crc32", code=1, says="--partitioner murmur2 puts them there")
    assert run(capsys, *grow, "--to", "4", "--dry-run") == ["orders: can have 4 partitions"]
    assert run(capsys, *grow, "--to", "4") == ["orders: has 4 partitions"]
    run(capsys, *grow, "--to", "4", code=1, says="already has 4 partition(s)")
    with Admin(bootstrap) as admin:
        ends = admin.find_offsets("orders", LATEST)
        admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 1})
    assert run(capsys, "groups", "describe", "billing")[-3:-1] == [
        f"  orders-2 waits until the group has committed orders-0 up to {ends[0]}; it is at 1",
        f"  orders-3 waits until the group has committed orders-1 up to {ends[1]}; it never committed it",
    ]
    assert run(capsys, *grow, "--to", "8") == ["orders: has 8 partitions"]
    with Admin(bootstrap) as admin:
        admin.alter_group_offsets("billing", {TopicPartition("orders", index): ends[index] for index in (0, 1)})
    assert "waits" not in "".join(run(capsys, "groups", "describe", "billing"))


def test_a_topic_that_is_created_again_while_it_grows_in_order(
    bootstrap: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capsys, "topics", "create", "orders", "--partitions", "2")

    def create_again(_seconds: float) -> None:
        with Admin(bootstrap) as admin:
            admin.delete_topics(["orders"])
            while any(topic.name == "orders" for topic in admin.list_topics()):
                time.sleep(0.02)
            admin.create_topics([NewTopic("orders", 2)])

    monkeypatch.setattr(topics_grow, "time", SimpleNamespace(monotonic=time.monotonic, sleep=create_again))
    told = "orders: deleted, and created again, while it grew"
    run(capsys, "topics", "expand", "orders", "--in-order", "--to", "4", code=1, says=told)


def test_a_topic_that_grows_in_order_after_it_grew_in_both_ways(bootstrap: str, capsys: Captured) -> None:
    def produce(number: int) -> None:
        with Producer(bootstrap) as producer:
            for each in range(number, number + 40):
                producer.send("orders", b"v", key=b"%d" % each)

    grow = ("topics", "expand", "orders")
    in_order = (*grow, "--in-order", "--quiet-ms", "0")
    run(capsys, "topics", "create", "orders", "--partitions", "2")
    produce(0)
    run(capsys, *in_order, "--to", "4")
    produce(40)
    run(capsys, *grow, "--to", "5")
    produce(80)
    assert run(capsys, *in_order, "--to", "10") == ["orders: has 10 partitions"]
    produce(120)
    run(capsys, *in_order, "--to", "20", "--partitioner", "crc32", code=1, says="--partitioner murmur2 puts them there")
