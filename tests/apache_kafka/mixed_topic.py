"""A partition folder that a real Apache Kafka wrote, with a mix of all that a log may hold."""

import base64
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.apache_kafka.harness import ApacheKafka, run_tool

TOPIC = "mixed"


class WrittenRecord(NamedTuple):
    """A record as Kafka's own consumer read it back."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class MixedTopic:
    """The partition's folder, and what is in it: every record, and which are left to read_committed."""

    folder: Path
    records: tuple[WrittenRecord, ...]
    committed_offsets: tuple[int, ...]
    end_offset: int


def write_mixed_topic(folder: Path) -> tuple[MixedTopic, MixedTopic]:
    """Has a broker write the partition; returns it as a killed broker left it, and as a stopped one did.

    The stopped broker is the killed one after it recovered. Beside each partition folder are the
    checkpoint files of its log directory.
    """
    with ApacheKafka(folder / "broker") as kafka:
        written = json.loads(run_tool("MixedTopic", kafka.bootstrap, TOPIC))
        kafka.kill()
        killed = _copy_partition(kafka, folder / "killed")
        kafka.start()
        kafka.stop()
        stopped = _copy_partition(kafka, folder / "stopped")
    return _mixed_topic(killed, written), _mixed_topic(stopped, written)


def _copy_partition(kafka: ApacheKafka, destination: Path) -> Path:
    destination.mkdir()
    for file in kafka.log_dir.iterdir():
        if file.is_file():
            shutil.copy2(file, destination)
    partition = kafka.partition_dir(TOPIC)
    return Path(shutil.copytree(partition, destination / partition.name))


def _mixed_topic(folder: Path, written: dict[str, Any]) -> MixedTopic:
    records = tuple(_record(described) for described in written["records"])
    return MixedTopic(folder, records, tuple(written["committed"]), written["end_offset"])


def _record(described: dict[str, Any]) -> WrittenRecord:
    headers = tuple((key, _bytes(value)) for key, value in described["headers"])
    key, value = _bytes(described["key"]), _bytes(described["value"])
    return WrittenRecord(described["offset"], described["timestamp"], key, value, headers)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
