"""ElectLeaders."""

from __future__ import annotations

from tests.conformance.cluster_requests import PREFERRED, UNCLEAN, elect, list_reassignments, reassign
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import UNKNOWN, metadata
from tests.conformance.script import Script, Topic

exchanges = Exchanges("elections", brokers=3)


def led_by_another(script: Script, label: str = "topic") -> Topic:
    """A topic whose leader, 1, is not the preferred one, 2."""
    topic = script.replicated([1, 2, 3], label=label)
    script.ask(reassign((topic.name, 0, [2, 1, 3])))
    script.await_leader(topic, 1, in_sync=3)
    ended = list_reassignments({topic.name: [0]})
    script.ask_until(ended, until=lambda answer: not answer.topics)
    return topic


@exchanges.versions((0, 1, 2))
def the_preferred_leader(script: Script, version: int) -> None:
    topic = led_by_another(script)
    script.send(elect({topic.name: [0]}), version)
    script.await_leader(topic, 2)
    script.send(metadata(topic.name))


@exchanges.one
def the_preferred_leader_asked_of_every_broker(script: Script) -> None:
    for node_id in (1, 2, 3):
        topic = led_by_another(script, f"topic {node_id}".replace(" ", "-"))
        script.send(elect({topic.name: [0]}), on=f"broker {node_id}")


@exchanges.cases({"preferred": PREFERRED, "unclean": UNCLEAN})
def where_none_is_needed(script: Script, kind: int) -> None:
    topic = script.replicated([1, 2, 3], [2, 3, 1])
    script.send(elect({topic.name: [0, 1]}, kind))


@exchanges.one
def an_unclean_one_where_another_leads_than_the_preferred(script: Script) -> None:
    script.send(elect({led_by_another(script).name: [0]}, UNCLEAN))


@exchanges.cases({"2": 2, "-1": -1})
def of_a_kind(script: Script, kind: int) -> None:
    script.send(elect({script.replicated([1, 2, 3]).name: [0]}, kind))


@exchanges.cases({"a partition": ("topic", 7), "a negative partition": ("topic", -1), "a topic": ("", 0)})
def without(script: Script, asked: tuple[str, int]) -> None:
    label, partition = asked
    topic = script.replicated([1, 2, 3])
    script.send(elect({topic.name if label else UNKNOWN.name: [partition]}))


@exchanges.one
def of_some_partitions(script: Script) -> None:
    topic = led_by_another(script)
    script.send(elect({topic.name: [0, 3], UNKNOWN.name: [0, 1]}))


@exchanges.one
def of_the_same_partition_twice(script: Script) -> None:
    topic = led_by_another(script)
    script.send(elect({topic.name: [0, 0]}))


@exchanges.versions((0, 1, 2))
def of_nothing(script: Script, version: int) -> None:
    script.send(elect({}), version)


@exchanges.versions((0, 2))
def of_all(script: Script, version: int) -> None:
    topic = led_by_another(script)
    script.send(elect(None), version, only_own=True)
    script.await_leader(topic, 2)
