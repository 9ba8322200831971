"""What the broker counts, in the text form that Prometheus reads.

Counting costs an addition; everything that can be looked up is looked up when somebody asks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Steps, finished

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

LINES_IN_A_STEP = 200
LOOKED_AT_IN_A_STEP = 500  # groups and members
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    def __init__(self) -> None:
        self.requests: defaultdict[str, int] = defaultdict(int)  # by API; a Counter takes four times as long
        self.received_bytes = 0
        self.produced_bytes = 0
        self.fetched_bytes = 0
        self.throttled_ms: Counter[str] = Counter()  # by kind of quota
        self.commits = 0  # requests that commit offsets
        self.failures = 0  # requests that met a bug


def exposition(broker: Broker) -> str:
    """All metrics as text, at once."""
    text: bytes = finished(exposition_steps(broker))
    return text.decode()


def exposition_steps(broker: Broker) -> Steps:
    """The same as it is served, in steps: there may be hundreds of thousands of lines."""
    if broker.has_groups:
        yield from broker.lags.refresh()
    parts: list[bytes] = []
    lines: list[str] = []
    for line in _lines(broker):
        if line is not None:
            lines.append(line)
        if line is None or len(lines) == LINES_IN_A_STEP:
            parts.append("".join(f"{each}\n" for each in lines).encode())
            lines.clear()
            yield None
    parts.append("".join(f"{each}\n" for each in lines).encode())
    return b"".join(parts)


def _lines(broker: Broker) -> Iterator[str | None]:
    """None: a moment for others."""
    metrics = broker.metrics
    yield from _family("ottla_requests_total", "counter", "Requests handled, by API.")
    for api, count in sorted(metrics.requests.items()):
        yield f'ottla_requests_total{{api="{api}"}} {count}'
    yield from _single("ottla_received_bytes_total", "counter", "Bytes of requests.", metrics.received_bytes)
    yield from _single("ottla_produced_bytes_total", "counter", "Bytes of batches appended.", metrics.produced_bytes)
    yield from _single("ottla_fetched_bytes_total", "counter", "Bytes of batches given out.", metrics.fetched_bytes)
    yield from _single("ottla_failures_total", "counter", "Requests that met a bug.", metrics.failures)
    yield from _family("ottla_throttled_milliseconds_total", "counter", "Time that clients were told to wait.")
    for kind, total in sorted(metrics.throttled_ms.items()):
        yield f'ottla_throttled_milliseconds_total{{quota="{kind}"}} {total}'
    connections = len(broker.frontend.connections)
    yield from _single("ottla_connections", "gauge", "Open connections.", connections)
    yield from _family("ottla_longest_round_seconds", "gauge", "Longest round of the loop in the last minute.")
    yield f"ottla_longest_round_seconds {broker.loop.longest_round.lately:.6f}"
    yield from _single("ottla_topics", "gauge", "Topics.", len(broker.topics))
    yield None
    logs = broker.logs.logs.values()
    yield from _single("ottla_partitions", "gauge", "Partitions on this broker.", len(logs))
    failed = sum(log.failure is not None for log in logs)
    yield from _single("ottla_failed_partitions", "gauge", "Partitions whose disk failed.", failed)
    uncleanable = sum(log.uncleanable is not None for log in logs)
    yield from _single("ottla_uncleanable_partitions", "gauge", "Partitions that cannot be compacted.", uncleanable)
    if broker.has_groups:
        yield from _group_lines(broker)
    yield from _family("ottla_log_size_bytes", "gauge", "Bytes of a topic's logs.")
    for topic in list(broker.topics):
        size = sum(partition.log.size_bytes for partition in topic.partitions)
        yield f'ottla_log_size_bytes{{topic="{topic.name}"}} {size}'


def _group_lines(broker: Broker) -> Iterator[str | None]:
    from ottla.coordinator.classic.group import ClassicGroup

    states: Counter[tuple[str, str]] = Counter()
    members: Counter[str] = Counter()
    looked = 0
    for shard in broker.groups.shards():
        for group in list(shard.machine.groups.values()):
            kind = "classic" if isinstance(group, ClassicGroup) else "consumer"
            states[kind, group.state_name] += 1
            members[kind] += group.member_count
            looked += 1 + group.member_count
            if looked >= LOOKED_AT_IN_A_STEP:
                looked = 0
                yield None
    yield from _family("ottla_groups", "gauge", "Groups, by their protocol and state.")
    for (kind, state), count in sorted(states.items()):
        yield f'ottla_groups{{protocol="{kind}",state="{state}"}} {count}'
    yield from _family("ottla_group_members", "gauge", "Members of groups, by protocol.")
    for kind, count in sorted(members.items()):
        yield f'ottla_group_members{{protocol="{kind}"}} {count}'
    yield from _single("ottla_commits_total", "counter", "Requests that commit offsets.", broker.metrics.commits)
    yield from _family("ottla_group_lag", "gauge", "Records that a group has not committed yet and would get.")
    for lag in broker.lags.known():
        labels = f'group="{_escaped(lag.group)}",topic="{lag.topic}",partition="{lag.partition}"'
        yield f"ottla_group_lag{{{labels}}} {lag.records}"


def _escaped(text: str) -> str:
    """A label's value: groups may have any name."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _family(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _single(name: str, kind: str, text: str, value: int) -> Iterator[str]:
    yield from _family(name, kind, text)
    yield f"{name} {value}"
