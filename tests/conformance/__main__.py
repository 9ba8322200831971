"""Records Apache Kafka's answers to all exchanges, says which of them changed, and compares Ottla's.

python -m tests.conformance             record and compare
python -m tests.conformance produce     only the groups that are named
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.apache_kafka.distribution import VERSION, KafkaUnavailable, classpath
from tests.apache_kafka.harness import ApacheKafka, ApacheKafkaCluster
from tests.conformance.answers import answers_of, difference, read_answers, write_answers
from tests.conformance.catalogue import all_groups
from tests.conformance.cluster import BROKERS, CLUSTER_SETTINGS, prepare_cluster, without
from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import describe_groups
from tests.conformance.script import Addresses, Script
from tests.conformance.sizes import SIZE_SETTINGS

SLOW_SECONDS = 2.0
NOT_READY = (14, 15, 16)
"""What a coordinator answers that is still to be loaded."""
PROPERTIES = {
    # On a busy machine its controller would take the broker for dead, and answers would show later epochs.
    "broker.session.timeout.ms": "60000",
    **SIZE_SETTINGS,
}


def main(names: list[str]) -> int:
    groups = [group for group in all_groups() if not names or group.group in names]
    try:
        classpath()
    except KafkaUnavailable as reason:
        print(f"nothing is recorded: {reason}")
    else:
        record(groups)
    print("now Ottla:", flush=True)
    chosen = ["-k", " or ".join(names)] if names else []
    tests = Path(__file__).parent / "test_conformance.py"
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", tests, *chosen]).returncode


def record(groups: list[Exchanges]) -> None:
    started = time.monotonic()
    changed = 0
    of_one = [group for group in groups if group.brokers == 1]
    of_several = [group for group in groups if group.brokers > 1]
    if of_one:
        with tempfile.TemporaryDirectory() as folder, ApacheKafka(Path(folder), PROPERTIES) as kafka:
            host, _, port = kafka.bootstrap.partition(":")
            address = host, int(port)
            await_coordinator(address)
            changed += sum(record_group(group, address) for group in of_one)
    if of_several:
        with (
            tempfile.TemporaryDirectory() as folder,
            ApacheKafkaCluster(Path(folder), BROKERS, {**PROPERTIES, **CLUSTER_SETTINGS}) as cluster,
        ):
            prepare_cluster(cluster.addresses)
            for group in sorted(of_several, key=lambda group: group.without is not None):
                if group.without is not None:
                    cluster.brokers[group.without].stop()
                addresses = without(cluster.addresses, group.without)
                changed += record_group(group, addresses[1], addresses)
    count = sum(len(group.all) for group in groups)
    seconds = time.monotonic() - started
    print(f"Apache Kafka {VERSION}: {count} exchanges recorded in {seconds:.0f} s, {changed} answers changed")


def await_coordinator(address: tuple[str, int]) -> None:
    """Kafka's can be found a moment before it serves."""
    with Script(address, "first") as script:
        request = describe_groups(script.group())
        script.ask_until(request, until=lambda answer: answer.groups[0].error_code not in NOT_READY)


def record_group(group: Exchanges, address: tuple[str, int], brokers: Addresses | None = None) -> int:
    """Writes the group's file and tells how many of its exchanges were answered otherwise than before."""
    before = read_answers(group.group)
    now = {}
    for exchange in group.all:
        started = time.monotonic()
        now[exchange.name] = answers_of(exchange, address, brokers)
        seconds = time.monotonic() - started
        if seconds > SLOW_SECONDS:
            print(f"slow: {exchange.full_name} took {seconds:.1f} s")
    write_answers(group.group, now)
    changed = 0
    for name in dict.fromkeys([*before, *now]):
        if before.get(name) == now.get(name):
            continue
        changed += 1
        kind = "new" if name not in before else "gone" if name not in now else "changed"
        print(f"{kind}: {group.group}: {name}")
        if kind == "changed":
            print(difference(before[name], now[name]))
    return changed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
