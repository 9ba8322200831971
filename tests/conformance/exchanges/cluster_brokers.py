"""UnregisterBroker, DescribeQuorum, AlterReplicaLogDirs and DescribeLogDirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.conformance.cluster_requests import describe_quorum, move_logs
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import UNKNOWN
from tests.conformance.script import Script

exchanges = Exchanges("cluster_brokers", brokers=3)


@exchanges.cases({"one that is not there": 9, "a negative one": -1})
def unregister(script: Script, node_id: int) -> None:
    script.send(UnregisterBrokerRequest(broker_id=node_id))


QUORUMS: dict[str, Mapping[str, Sequence[int]]] = {
    "another topic": {UNKNOWN.name: [0]},
    "another partition": {"__cluster_metadata": [1]},
    "no topic": {},
    "no partition": {"__cluster_metadata": []},
    "two partitions": {"__cluster_metadata": [0, 1]},
}


@exchanges.cases(QUORUMS)
def the_quorum_of(script: Script, topics: Mapping[str, Sequence[int]]) -> None:
    for version in (0, 1, 2):
        script.send(describe_quorum(topics), version)


def folders(script: Script, node_id: int) -> list[str]:
    answer = script.ask(DescribeLogDirsRequest(topics=[]), on=f"broker {node_id} prepare")
    return sorted(found.log_dir for found in answer.results)


@exchanges.versions((1, 2))
def a_replica_moves_to_another_folder(script: Script, version: int) -> None:
    topic = script.replicated([1, 2])
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic.name, partitions=[0])])
    answer = script.ask(request)
    [here] = [found.log_dir for found in answer.results if found.topics]
    [there] = [found for found in folders(script, 1) if found != here]
    script.send(move_logs(there, {topic.name: [0]}), version)

    def is_there(answer: object) -> bool:
        return [found.log_dir for found in answer.results if found.topics] == [there]  # type: ignore[attr-defined]

    script.ask_until(request, until=is_there)
    script.send(move_logs(there, {topic.name: [0]}), version)


@exchanges.cases({"a folder that is not there": "/nowhere", "no folder": "", "a relative one": "data"})
def a_replica_moves_to(script: Script, folder: str) -> None:
    script.send(move_logs(folder, {script.replicated([1, 2]).name: [0]}))


@exchanges.one
def a_replica_of_another_broker_moves(script: Script) -> None:
    """A log that comes here is made in that folder, then."""
    topic = script.replicated([1, 2])
    script.send(move_logs(folders(script, 3)[0], {topic.name: [0]}), on="broker 3")


@exchanges.cases({"a partition": [7], "a negative partition": [-1], "some": [0, 7]})
def logs_move_that_are_not_there(script: Script, partitions: Sequence[int]) -> None:
    script.send(move_logs(folders(script, 1)[0], {script.replicated([1, 2]).name: partitions}))


@exchanges.one
def a_log_of_an_unknown_topic_moves(script: Script) -> None:
    script.send(move_logs(folders(script, 1)[0], {UNKNOWN.name: [0]}))


@exchanges.versions((1, 2))
def nothing_moves(script: Script, version: int) -> None:
    script.send(move_logs(folders(script, 1)[0], {}), version)
