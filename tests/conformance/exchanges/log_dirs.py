"""DescribeLogDirs."""

from __future__ import annotations

from ottla.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import UNKNOWN
from tests.conformance.script import Script

exchanges = Exchanges("log_dirs")


def describe(*topics: tuple[str, list[int]]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=name, partitions=partitions) for name, partitions in topics]
    )


@exchanges.versions((1, 2, 3, 4, 5))
def a_topic(script: Script, version: int) -> None:
    topic = script.topic(partitions=2, values=3)
    script.send(describe((topic.name, [0, 1])), version)


@exchanges.versions((1, 5))
def all_topics(script: Script, version: int) -> None:
    script.topic(partitions=2, values=3)
    script.send(DescribeLogDirsRequest(topics=None), version, only_own=True)


@exchanges.cases({"unknown": [5], "-1": [-1], "one of two": [0, 5], "none": [], "the same twice": [0, 0]})
def partitions(script: Script, partitions: list[int]) -> None:
    script.send(describe((script.topic(values=1).name, partitions)))


@exchanges.cases({"unknown": UNKNOWN.name, "empty": "", "not allowed": "a/b"})
def a_name(script: Script, name: str) -> None:
    script.send(describe((name, [0])))


@exchanges.versions((1, 5))
def no_topics(script: Script, version: int) -> None:
    script.send(describe(), version)
