"""Answers as plain values that can be kept in a file, compared and read."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from ottla.records.batch import CorruptBatch, check_batch
from ottla.records.read import read_batches
from ottla.wire.schema import Response, Struct
from tests.conformance.masks import (
    GENERATED_ID,
    OUR_OWN_PLACE,
    UNORDERED,
    masked_id,
    masked_ids_in_text,
    masked_number,
    masked_text,
)

Json: TypeAlias = Any

WIDTH = 120
SORTED_BY = (
    "name", "topic", "topic_name", "topic_id", "index", "partition", "partition_index", "resource_name",
    "group_id", "member_id", "transactional_id",
)  # fmt: skip
PARTITION_LISTS = ("partitions", "partition_responses")


class Rendering:
    """Turns responses into plain values, with what differs by nature masked."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.topic_labels: dict[bytes, str] = {}
        """By topic id, for the topics that the exchange has made."""
        self._members: dict[str, str] = {}
        """Ids that a broker gave to members, as they are shown."""
        self._producers: dict[int, str] = {}

    def learn(self, response: Response, connection: str) -> None:
        """Ids that a broker makes are shown by the connection, or the number, of whoever got them first."""
        found = GENERATED_ID.search(getattr(response, "member_id", None) or "")
        if found and found[0] not in self._members and self.token not in found[0]:
            names = [f"<{connection}>", *(f"<{connection} {number}>" for number in range(2, len(self._members) + 2))]
            self._members[found[0]] = next(name for name in names if name not in self._members.values())
        producer_id = getattr(response, "producer_id", -1)
        if producer_id >= 0:
            self._producers.setdefault(producer_id, f"<producer {len(self._producers) + 1}>")

    def response(self, response: Response, version: int) -> dict[str, Json]:
        return self._struct(response, version, UNORDERED.get(response.api.name, set()))

    def _struct(self, struct: Struct, version: int, unordered: set[str]) -> dict[str, Json]:
        rendered = {
            field: self._blob(value) if "Bytes" in kind and value else self._value(field, value, version, unordered)
            for field, (kind, options) in struct.declared.items()
            if version in options.versions
            for value in [getattr(struct, field)]
        }
        if rendered.get("name") in OUR_OWN_PLACE and rendered.get("value"):
            rendered["value"] = "<place>"
        return rendered

    def _value(self, field: str, value: object, version: int, unordered: set[str]) -> Json:
        if isinstance(value, Struct):
            return self._struct(value, version, unordered)
        if isinstance(value, list):
            rendered = [self._value(field, element, version, unordered) for element in value]
            return sorted(_merged(rendered), key=_sort_key) if field in unordered else rendered
        if isinstance(value, memoryview):
            return self._records(value)
        if value == b"":
            return ""
        if isinstance(value, bytes):
            return masked_id(value, self.topic_labels)
        if isinstance(value, str):
            return self._string(field, value)
        if isinstance(value, bool) or not isinstance(value, int):
            return value
        return self._number(field, value)

    def _string(self, field: str, value: str) -> str:
        for member_id, shown in self._members.items():
            value = value.replace(member_id, shown)
        return masked_ids_in_text(masked_text(field, value, self.token), self.topic_labels)

    def _number(self, field: str, value: int) -> int | str:
        if field == "producer_id" and value in self._producers:
            return self._producers[value]
        return masked_number(field, value)

    def _blob(self, value: bytes) -> str:
        """Of what members say to each other through the broker."""
        return self._string("", value.decode(errors="backslashreplace"))

    def _records(self, records: memoryview) -> Json:
        """Batches with their records: codecs may compress the same records to other bytes."""
        rendered: list[Json] = []
        size_bytes = 0
        for batch in read_batches(records, with_control=True):
            size_bytes += batch.header.size
            try:
                check_batch(batch.bytes)
            except CorruptBatch as fault:
                rendered.append(f"corrupt: {fault}")
                continue
            header = batch.header._asdict()
            for field in ("length", "crc"):
                del header[field]
            header = {field: self._number(field, number) for field, number in header.items()}
            header["records"] = [
                [
                    record.offset,
                    masked_number("timestamp", record.timestamp),
                    _text(record.key),
                    _text(record.value),
                    *[[key, _text(value)] for key, value in record.headers],
                ]
                for record in batch.records()
            ]
            rendered.append(header)
        if size_bytes < len(records):
            rendered.append(f"{len(records) - size_bytes} bytes of another batch")
        return rendered


def _merged(rendered: list[Json]) -> list[Json]:
    """An entry a topic: whether Kafka makes two of them hangs on the order of its partitions."""
    merged: dict[str, Json] = {}
    for index, element in enumerate(rendered):
        lists = [name for name in PARTITION_LISTS if isinstance(element, dict) and name in element]
        if not lists:
            merged[f"{index}"] = element
            continue
        [partitions] = lists
        topic = json.dumps({field: value for field, value in element.items() if field != partitions})
        if topic in merged:
            merged[topic][partitions] = sorted([*merged[topic][partitions], *element[partitions]], key=_sort_key)
        else:
            merged[topic] = element
    return list(merged.values())


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = value.decode(errors="backslashreplace")
    return text if len(text) < 100 else f"{text[:20]}... ({len(value)} bytes)"


def _sort_key(rendered: Json) -> str:
    """Of structs that are alike, the name or the number comes first in the declaration, or nearly."""
    if isinstance(rendered, dict):
        for field in SORTED_BY:
            if rendered.get(field) is not None:
                value = rendered[field]
                return f"{value:>12}" if isinstance(value, int) else f"{value} {json.dumps(rendered)}"
    return f"{rendered:>12}" if isinstance(rendered, int) else json.dumps(rendered)


def pretty(value: Json, indent: int = 0, lead: int = 0) -> str:
    """JSON that breaks only the lines that would be too long."""
    flat = json.dumps(value, ensure_ascii=False)
    if indent + lead + len(flat) < WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        rows = []
        for key, element in value.items():
            name = f"{json.dumps(key, ensure_ascii=False)}: "
            rows.append(f"{inner}{name}{pretty(element, indent + 2, len(name))}")
        opening, closing = "{", "}"
    else:
        rows = [f"{inner}{pretty(element, indent + 2)}" for element in value]
        opening, closing = "[", "]"
    return f"{opening}\n" + ",\n".join(rows) + f"\n{' ' * indent}{closing}"
