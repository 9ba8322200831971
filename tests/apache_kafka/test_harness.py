"""The harness itself: it makes what it promises and leaves nothing behind."""

import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.apache_kafka.distribution import KafkaUnavailable, classpath, made_once
from tests.apache_kafka.harness import ApacheKafka, ToolFailed, run_tool
from tests.apache_kafka.mixed_topic import MixedTopic

REPOSITORY = Path(__file__).parents[2]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

START_AND_WAIT = """
import sys, time
from pathlib import Path
from tests.apache_kafka.harness import ApacheKafka
kafka = ApacheKafka(Path(sys.argv[1]))
kafka.start()
print(kafka.bootstrap, flush=True)
time.sleep(600)
"""


def test_without_java_the_reason_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda command: None if command == "mvn" else f"/bin/{command}")
    with pytest.raises(KafkaUnavailable, match=r"needs mvn: install a JDK \(17 or later\) and Maven$"):
        classpath()


def test_a_cached_folder_is_made_once_by_many_at_the_same_time(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        (folder / "content").write_text("whole")
        made.append(folder)

    with ThreadPoolExecutor(8) as workers:
        folders = list(workers.map(lambda _: made_once(tmp_path / "cached", make), range(8)))
    assert len(made) == 1
    assert {(folder / "content").read_text() for folder in folders} == {"whole"}


def test_a_cached_folder_that_fails_is_not_there(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("interrupted")

    with pytest.raises(OSError, match="interrupted"):
        made_once(tmp_path / "cached", fail)
    assert not (tmp_path / "cached").exists()
    assert list(made_once(tmp_path / "cached", lambda folder: None).iterdir()) == []


def test_a_failed_tool_tells_why(kafka_classpath: str) -> None:
    with pytest.raises(ToolFailed, match=r"TopicCommand --list ended with 1: .*bootstrap-server"):
        run_tool("org.apache.kafka.tools.TopicCommand", "--list")


def test_the_broker_serves_kafkas_own_tools(apache_kafka: ApacheKafka) -> None:
    command = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", apache_kafka.bootstrap)
    run_tool(*command, "--create", "--topic", "served")
    assert "served" in run_tool(*command, "--list").splitlines()
    assert apache_kafka.partition_dir("served").is_dir()


def test_the_broker_dies_with_the_process_that_started_it(kafka_classpath: str, tmp_path: Path) -> None:
    command = (sys.executable, "-c", START_AND_WAIT, str(tmp_path / "orphan"))
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        host, port = starter.stdout.readline().strip().split(":")
        starter.send_signal(signal.SIGKILL)
    with pytest.raises(ConnectionRefusedError):
        connect_until_refused(host, int(port))


def connect_until_refused(host: str, port: int) -> None:
    for _ in range(600):
        with socket.create_connection((host, port), timeout=5):
            time.sleep(0.05)


@pytest.mark.parametrize("ending", ["killed", "stopped"])
def test_the_mixed_partition_has_all_that_a_log_may_hold(
    mixed_topics: tuple[MixedTopic, MixedTopic], ending: str
) -> None:
    topic = mixed_topics[["killed", "stopped"].index(ending)]
    segments = sorted(topic.folder.glob("*.log"))
    assert len(segments) > 3
    assert list(topic.folder.glob("*.snapshot"))
    assert any(index.stat().st_size for index in topic.folder.glob("*.txnindex"))
    assert (topic.folder.parent / ".kafka_cleanshutdown").exists() == (ending == "stopped")
    dump = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(map(str, segments)))
    for codec in CODECS:
        assert f"compresscodec: {codec}" in dump
    for mark in ("isTransactional: true isControl: true", "isTransactional: false isControl: false"):
        assert mark in dump
    assert "isvalid: false" not in dump
    assert f"lastOffset: {topic.end_offset - 1} " in dump


def test_the_mixed_partition_comes_with_what_kafka_reads_from_it(killed_topic: MixedTopic) -> None:
    records = killed_topic.records
    offsets = [record.offset for record in records]
    assert offsets == sorted(offsets)
    assert set(killed_topic.committed_offsets) < set(offsets)
    assert {record.key is None for record in records} == {True, False}
    assert {record.value is None for record in records} == {True, False}
    assert any(record.value == b"" for record in records)
    assert any(("absent", None) in record.headers and ("empty", b"") in record.headers for record in records)
