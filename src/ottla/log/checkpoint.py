"""Kafka's small text files: offsets by partition, leader epochs, the topic id of a folder.

All have a version line. What does not parse raises `CorruptCheckpoint`; whoever reads decides whether it can be
made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.wire.uuids import parse_uuid, uuid_text

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

TopicPartition = tuple[str, int]


class CorruptCheckpoint(ValueError):
    """A checkpoint file that cannot be read."""


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return _with_head(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for line in _body(data) if data else ():  # Kafka makes them empty, and fills them later
        try:
            topic, partition, offset = line.split()
            offsets[topic, int(partition)] = int(offset)
        except ValueError:
            raise CorruptCheckpoint(f"not '<topic> <partition> <offset>': {line!r}") from None
    return offsets


def format_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    return _with_head(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def parse_epochs(data: bytes) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    for line in _body(data):
        try:
            epoch, start_offset = line.split()
            entries.append((int(epoch), int(start_offset)))
        except ValueError:
            raise CorruptCheckpoint(f"not '<epoch> <start offset>': {line!r}") from None
    return entries


def _with_head(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "\n".join(["0", str(len(body)), *body, ""]).encode()


def _body(data: bytes) -> list[str]:
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        raise CorruptCheckpoint("not text") from None
    if len(lines) < 2 or lines[0] != "0":
        raise CorruptCheckpoint(f"version is {lines[0]!r}, not '0'")
    body = [line for line in lines[2:] if line]
    if lines[1] != str(len(body)):
        raise CorruptCheckpoint(f"{lines[1]!r} lines are announced, {len(body)} are there")
    return body


def format_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> bytes:
    try:
        fields = dict(line.split(": ", 1) for line in data.decode().splitlines() if line)
        if fields["version"] != "0":
            raise CorruptCheckpoint(f"version is {fields['version']!r}, not '0'")
        return parse_uuid(fields["topic_id"])
    except (ValueError, KeyError) as error:
        raise CorruptCheckpoint(f"not a partition.metadata file: {error}") from None
