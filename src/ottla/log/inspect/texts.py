"""Checking the small text files of a data folder and of its partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ottla.log.checkpoint import (
    CorruptCheckpoint,
    TopicPartition,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
)
from ottla.log.epochs import LeaderEpochs
from ottla.log.inspect.files import ReadOnlyFiles
from ottla.log.inspect.report import FileReport

_Parsed = TypeVar("_Parsed")
_META_VERSIONS = ("0", "1")


def _parse(report: FileReport, parse: Callable[[bytes], _Parsed]) -> _Parsed | None:
    try:
        return parse(report.file.path.read_bytes())
    except CorruptCheckpoint as error:
        report.add(str(error))
        return None


def epochs_in(data: bytes) -> list[tuple[int, int]]:
    return parse_epochs(data) if data else []  # Kafka makes its checkpoints empty and fills them later


def offsets_in(data: bytes) -> dict[TopicPartition, int]:
    return parse_offsets(data) if data else {}


def check_epochs(report: FileReport) -> LeaderEpochs | None:
    """The epochs, to hold batches against; None if the file is not sound."""
    entries = _parse(report, epochs_in)
    if entries is None:
        return None
    report.facts["epochs"] = len(entries)
    before = (-1, -1)
    for entry in entries:
        if entry[0] <= before[0] or entry[1] <= before[1]:
            report.add(f"epoch {entry[0]} from offset {entry[1]} follows epoch {before[0]} from offset {before[1]}")
        before = entry
    if not report.is_ok:
        return None
    epochs = LeaderEpochs(ReadOnlyFiles(), str(report.file.path.parent))
    epochs.entries = entries
    return epochs


def check_metadata(report: FileReport) -> None:
    _parse(report, parse_partition_metadata)


def check_offsets(report: FileReport) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint, to hold partitions against."""
    offsets = _parse(report, offsets_in) or {}
    report.facts["partitions"] = len(offsets)
    for (topic, partition), offset in offsets.items():
        if partition < 0 or offset < 0:
            report.add(f"{topic} {partition} {offset}: partitions and offsets are not negative")
    return offsets


def parse_properties(data: bytes) -> dict[str, str]:
    """Java's properties, as far as meta.properties uses them."""
    try:
        lines = [line.strip() for line in data.decode().splitlines()]
    except UnicodeDecodeError:
        raise CorruptCheckpoint("not text") from None
    properties = {}
    for line in lines:
        if line and not line.startswith(("#", "!")):
            name, equals, value = line.partition("=")
            if not equals:
                raise CorruptCheckpoint(f"not '<name>=<value>': {line!r}")
            properties[name.strip()] = value.strip()
    return properties


def check_properties(report: FileReport) -> None:
    properties = _parse(report, parse_properties)
    if properties is None:
        return
    report.facts["properties"] = len(properties)
    if properties.get("version") not in _META_VERSIONS:
        report.add(f"version is {properties.get('version')!r}, not one of {', '.join(_META_VERSIONS)}")
    for name in ("node.id", "broker.id"):
        if not properties.get(name, "0").isdecimal():
            report.add(f"{name} is {properties[name]!r}, not a number")
