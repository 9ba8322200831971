"""Three brokers as processes on one store in a folder: killed with -9, started again, and refused twice."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.frames import decode_response, encode_request
from ottla.wire.schema import Request
from tests.conformance import requests
from tests.conformance.connection import Connection
from tests.faults.broker_process import BrokerProcess

IDS = (1, 2, 3)
PATIENCE_S = 30.0
SESSION_S = 9.0  # broker.session.timeout.ms, after which silence is believed


class Processes:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = f"local:{folder}/cluster.sqlite"
        self.running: dict[int, BrokerProcess] = {}

    def start(self, node_id: int) -> None:
        process = BrokerProcess(self.folder / str(node_id), "--store", self.store, "--id", str(node_id))
        self.running[node_id] = process

    def kill(self, node_id: int) -> None:
        self.running.pop(node_id).errors_until_killed()

    def ask(self, node_id: int, request: Request, version: int) -> Any:
        with contextlib.closing(Connection(self.running[node_id].address)) as connection:
            connection.send(encode_request(1, "test", request, version))
            frame = connection.receive(PATIENCE_S)
        assert isinstance(frame, bytes), frame
        return decode_response(frame, request.api, version)[1]

    def metadata(self, node_id: int, *names: str) -> Any:
        return self.ask(node_id, requests.metadata(*names), 12)

    def leaders(self, node_id: int, name: str) -> dict[int, int]:
        [topic] = self.metadata(node_id, name).topics
        return {partition.partition_index: partition.leader_id for partition in topic.partitions}

    def wait(self, is_done: Callable[[], bool]) -> float:
        """How long it took."""
        started = time.monotonic()
        while not is_done():
            assert time.monotonic() - started < PATIENCE_S, "it takes too long"
            time.sleep(0.02)
        return time.monotonic() - started

    def are_in_sync(self, name: str) -> bool:
        for node_id in self.running:
            answer = self.metadata(node_id, name)
            if len(answer.brokers) < len(self.running):
                return False
            for partition in answer.topics[0].partitions:
                if not set(self.running) & set(partition.replica_nodes) <= set(partition.isr_nodes):
                    return False
        return True


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    processes = Processes(tmp_path_factory.mktemp("cluster"))
    try:
        for node_id in IDS:
            processes.start(node_id)
        yield processes
    finally:
        for node_id in list(processes.running):
            processes.kill(node_id)


@pytest.fixture
def topic(processes: Processes, request: pytest.FixtureRequest) -> str:
    """One of the test, on all brokers, created by the one with the highest number."""
    for node_id in IDS:
        if node_id not in processes.running:
            processes.start(node_id)
    name: str = request.node.name.replace("[", "-").replace("]", "")
    asked = requests.creatable(name, partitions=6, factor=3)
    [created] = processes.ask(3, requests.create_topics(asked), 7).topics
    assert (created.error_code, created.error_message) == (0, None)
    processes.wait(lambda: processes.are_in_sync(name))
    return name


def test_all_tell_the_same(processes: Processes, topic: str) -> None:
    answers = [processes.metadata(node_id, topic) for node_id in IDS]
    assert answers[0] == answers[1] == answers[2]
    assert {partition.leader_id for partition in answers[0].topics[0].partitions} == set(IDS)


@pytest.mark.parametrize("is_controller", [False, True], ids=["a-broker", "the-controller"])
def test_one_that_is_killed_is_replaced_long_before_its_session_is_over(
    processes: Processes, topic: str, is_controller: bool
) -> None:
    controller = processes.metadata(1, topic).controller_id
    victim = controller if is_controller else next(node_id for node_id in IDS if node_id != controller)
    processes.kill(victim)
    others = list(processes.running)
    took = processes.wait(lambda: all({*processes.leaders(node_id, topic).values()} <= {*others} for node_id in others))
    assert took < SESSION_S / 2  # some hundredths of a second, on a machine that has time
    processes.wait(lambda: {processes.metadata(node_id, topic).controller_id for node_id in others} <= {*others})
    name = f"{topic}-after"
    [created] = processes.ask(others[0], requests.create_topics(requests.creatable(name, factor=2)), 7).topics
    assert created.error_code == 0
    processes.start(victim)
    processes.wait(lambda: processes.are_in_sync(topic))
    assert processes.leaders(victim, name) == processes.leaders(others[1], name)


def test_a_second_broker_of_an_id_is_refused_in_one_sentence(processes: Processes, topic: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla", "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path)]
    ended = subprocess.run(
        [*command, "--store", processes.store, "--id", "2", "--log-level", "error"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 2
    [told] = ended.stderr.splitlines()
    assert f"node.id 2: another broker of this id is running at {processes.running[2].bootstrap}" in told
    assert processes.are_in_sync(topic)


def test_a_stop_in_good_order_leaves_no_partition_without_a_leader(processes: Processes, topic: str) -> None:
    victim = next(node_id for node_id in IDS if node_id != processes.metadata(1, topic).controller_id)
    assert processes.running.pop(victim).errors() == ""
    for node_id in processes.running:
        assert {*processes.leaders(node_id, topic).values()} == {*processes.running}
