"""Three brokers as users start them, on a real ZooKeeper: the nodes that Kafka had, and leaders that are killed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ottla.client import EARLIEST, LATEST, Admin, NewTopic, Producer, Reader, ServerError
from ottla.controller.zookeeper import address, nodes
from ottla.testing import LocalBroker
from ottla.wire.uuids import uuid_text
from tests.faults.broker_process import BrokerProcess
from tests.zookeeper.servers import ZookeeperServers, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
SETTINGS = ("--set", "offsets.topic.num.partitions=3", "--set", "broker.session.timeout.ms=3000")
SECONDS = 60.0


@contextmanager
def brokers(folder: Path, hosts: str, count: int = 3) -> Iterator[dict[int, BrokerProcess]]:
    with ExitStack() as stack:
        yield {
            node_id: stack.enter_context(
                BrokerProcess(
                    folder / str(node_id),
                    *("--store", f"zookeeper://{hosts}/kafka/test", "--id", str(node_id), "--rack", f"r{node_id}"),
                    *SETTINGS,
                )
            )
            for node_id in range(1, count + 1)
        }


def until_leader_is_not(admin: Admin, topic: str, dead: int) -> int:
    deadline = time.monotonic() + SECONDS
    while True:
        [described] = admin.describe_topics([topic])
        leader = described.partitions[0].leader_id
        if leader not in (dead, -1):
            return leader
        assert time.monotonic() < deadline, f"broker {dead} still leads {topic}"
        time.sleep(0.02)


def nodes_in(hosts: str) -> dict[str, bytes]:
    """As any client of ZooKeeper sees them."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=f"{hosts}/kafka/test")
    client.start()
    found: dict[str, bytes] = {}
    above = [""]
    while above:
        path = above.pop()
        for name in client.get_children(path or "/"):
            above.append(f"{path}/{name}")
            found[above[-1]] = client.get(above[-1])[0]
    client.stop()
    client.close()
    return found


def test_brokers_on_zookeeper(tmp_path: Path) -> None:
    with ZookeeperServers(tmp_path / "zookeeper") as servers, brokers(tmp_path, servers.hosts) as running:
        bootstrap = ",".join(broker.bootstrap for broker in running.values())
        with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
            [created] = admin.create_topics([NewTopic("orders", 1, 3, {"min.insync.replicas": "2"})])
            [described] = admin.describe_topics(["orders"])
            cluster = admin.describe_cluster()
            check_nodes(nodes_in(servers.hosts), running, uuid_text(created.topic_id), cluster.controller_id)
            with pytest.raises(ServerError, match=r"ZooKeeper takes 1,000,000 at once \(POLICY_VIOLATION\)"):
                admin.create_topics([NewTopic("wide", 5000, 3)])
            assert [broker.rack for broker in cluster.brokers] == ["r1", "r2", "r3"]
            producer.send("orders", b"before")
            producer.flush()
            first = described.partitions[0].leader_id
            running[first].kill()
            until_leader_is_not(admin, "orders", first)
            producer.send("orders", b"without a leader")
            producer.flush()
            # ZooKeeper may be away: what is decided stays, and what must be decided waits.
            servers.kill(0)
            producer.send("orders", b"without ZooKeeper")
            producer.flush()
            servers.start(0)
            assert admin.create_topics([NewTopic("later", 1, 2)])
        with Reader(bootstrap, "orders", start=EARLIEST, end=LATEST) as reader:
            values = [record.value for fetched in reader for record in fetched.records]
        assert values == [b"before", b"without a leader", b"without ZooKeeper"]


def test_one_broker_with_more_partitions_than_a_commit_takes_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it leads gets a new epoch: with the limit that ZooKeeper has, five thousand fit into one commit."""
    for module in (nodes, address):
        monkeypatch.setattr(module, "MAX_REQUEST_BYTES", 42_000)
    with ZookeeperServers(tmp_path / "zookeeper") as servers:
        store = f"zookeeper://{servers.hosts}/kafka"
        broker = LocalBroker(str(tmp_path / "data"), store=store)
        for number in range(8):
            broker.topic(f"t{number}", partitions=30)
        broker.put("t0", b"kept")
        broker.stop()
        broker = LocalBroker(str(tmp_path / "data"), store=store)
        assert broker.values("t0") == [b"kept"]
        broker.stop()


def check_nodes(found: dict[str, bytes], running: dict[int, BrokerProcess], topic_id: str, controller_id: int) -> None:
    for node_id, broker in running.items():
        host, port = broker.address
        described = json.loads(found[f"/brokers/ids/{node_id}"])
        assert int(described.pop("timestamp")) > 0
        assert described == {
            "version": 5,
            "host": host,
            "port": port,
            "jmx_port": -1,
            "endpoints": [f"PLAINTEXT://{host}:{port}"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "rack": f"r{node_id}",
            "features": {},
        }
    topic = json.loads(found["/brokers/topics/orders"])
    replicas = topic["partitions"]["0"]
    assert sorted(replicas) == [1, 2, 3]
    assert topic == {
        "version": 3,
        "topic_id": topic_id,
        "partitions": {"0": replicas},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    state = json.loads(found["/brokers/topics/orders/partitions/0/state"])
    epoch = int(found["/controller_epoch"])
    expected = {"version": 1, "leader": replicas[0], "leader_epoch": 0, "controller_epoch": epoch, "isr": replicas}
    assert {name: state[name] for name in expected} == expected
    assert json.loads(found["/controller"])["brokerid"] == controller_id
    assert json.loads(found["/config/topics/orders"]) == {"version": 1, "config": {"min.insync.replicas": "2"}}
    assert json.loads(found["/cluster/id"])["version"] == "1"
