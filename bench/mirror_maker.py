"""Whole mirrors as processes: `ottla mirror run`, and MirrorMaker 2 of Apache Kafka where Maven has it."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.broker_servers import cpu_seconds_of
from bench.java_programs import classpath
from ottla.client import LATEST, Admin, ServerError
from tests.connect.running import RunnerProcess

VERSION = "4.3.1"
LONGEST_SECONDS = 300.0
SETTINGS = """clusters = source, target
source.bootstrap.servers = {source}
target.bootstrap.servers = {target}
source->target.enabled = true
source->target.topics = {topic}
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
replication.factor = 1
emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
sync.topic.acls.enabled = false
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
"""


@contextmanager
def ours(source: str, target: str, topic: str) -> Iterator[int]:
    """The id of its process."""
    with tempfile.TemporaryDirectory(prefix="ottla-mirror-") as folder:
        file = Path(folder) / "mirror.toml"
        file.write_text(f'source = "{source}"\ntarget = "{target}"\ntopics = ["{topic}"]\n')
        with RunnerProcess(file, "mirror") as runner:
            yield runner.process.pid


@contextmanager
def mirror_maker(source: str, target: str, topic: str) -> Iterator[int | None]:
    found = classpath(f"mirror-maker-{VERSION}", f"org.apache.kafka:connect-mirror:{VERSION}")
    if found is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="ottla-mirror-") as folder:
        file = Path(folder) / "mirror.properties"
        file.write_text(SETTINGS.format(source=source, target=target, topic=topic))
        command = ["java", "-Xmx1g", "-cp", found, "org.apache.kafka.connect.mirror.MirrorMaker", str(file)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield process.pid
        finally:
            process.kill()
            process.wait()


def measure(process_id: int, target: str, topic: str, count: int) -> tuple[float, float]:
    """Seconds and processor seconds a record, from the first that are there to the last."""
    deadline = time.monotonic() + LONGEST_SECONDS
    seen = first = 0
    begun = begun_cpu = 0.0
    with Admin(target) as admin:
        while seen < count:
            assert time.monotonic() < deadline, f"{seen:,} of {count:,} records in {LONGEST_SECONDS:g} s"
            time.sleep(0.005)
            try:
                seen = sum(admin.find_offsets(topic, LATEST).values())
            except ServerError:
                continue
            if seen and not first:
                first, begun, begun_cpu = seen, time.perf_counter(), cpu_seconds_of(process_id)
    left = max(count - first, 1)
    return (time.perf_counter() - begun) / left, (cpu_seconds_of(process_id) - begun_cpu) / left
