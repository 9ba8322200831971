"""Requests and answers as plain values that can be kept in a file, compared and read."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from typing import Any, TypeAlias

from ottla.wire.schema import REQUIRED, Request, Response, Struct
from ottla.wire.uuids import ZERO_UUID
from tests.conformance.masks import (
    ANOTHER_PRODUCER,
    GENERATED_ID,
    OUR_OWN_PLACE,
    UNORDERED,
    masked_id,
    masked_ids_in_text,
    masked_number,
    masked_text,
)
from tests.conformance.rendered_records import rendered_records

Json: TypeAlias = Any

WIDTH = 120
SORTED_BY = (
    "name", "topic", "topic_name", "topic_id", "index", "partition", "partition_index", "resource_name",
    "group_id", "member_id", "transactional_id",
)  # fmt: skip
PARTITION_LISTS = ("partitions", "partition_responses")
NAMES = ("name", "topic", "resource_name", "group_id", "transactional_id")
"""Fields that say whose an element of a list is."""
SHOWN_CHARACTERS = 200
SHOWN_ELEMENTS = 20
"""Of a request."""


class Rendered(dict[str, Json]):
    """A struct with all fields of its version, and the names of those that are as declared."""

    def __init__(self, fields: dict[str, Json], at_default: set[str]) -> None:
        super().__init__(fields)
        self.at_default = at_default


class Rendering:
    """Turns messages into plain values: what differs by nature masked, what is as its declaration says left out."""

    def __init__(self, token: str, hidden: frozenset[str] = frozenset()) -> None:
        """`hidden`: fields whose number says nothing."""
        self.token = token
        self._hidden = hidden
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

    def request(self, request: Request, version: int) -> Json:
        """Long values and long lists are shortened: what was sent is in the exchange."""
        return _shortened(without_defaults(self._struct(request, version, set())))

    def response(self, response: Response, version: int, only_of: Collection[str] | None = None) -> Json:
        """`only_of` leaves out of all lists what has another name."""
        rendered = self._struct(response, version, UNORDERED.get(response.api.name, set()))
        return without_defaults(rendered if only_of is None else _only_with(only_of, rendered))

    def _struct(self, struct: Struct, version: int, unordered: set[str]) -> Rendered:
        rendered = {}
        at_default = set()
        for field, (kind, options) in struct.declared.items():
            if version not in options.versions:
                continue
            value = getattr(struct, field)
            shown = rendered[field] = self._field(field, kind, value, version, unordered)
            is_masked = isinstance(value, int) and isinstance(shown, str)
            if _is_default(value, options.default) and not is_masked:
                at_default.add(field)
        if rendered.get("name") in OUR_OWN_PLACE and rendered.get("value"):
            rendered["value"] = "<place>"
        return Rendered(rendered, at_default)

    def _field(self, field: str, kind: str, value: Any, version: int, unordered: set[str]) -> Json:
        if kind.startswith("Records"):
            return None if value is None else rendered_records(memoryview(value), self._number)
        if "Bytes" in kind and value:
            return self._blob(value)
        return self._value(field, value, version, unordered)

    def _value(self, field: str, value: object, version: int, unordered: set[str]) -> Json:
        if isinstance(value, Struct):
            return self._struct(value, version, unordered)
        if isinstance(value, list):
            rendered = [self._value(field, element, version, unordered) for element in value]
            return sorted(_merged(rendered), key=_sort_key) if field in unordered else rendered
        if value == b"":
            return ""
        if isinstance(value, bytes):
            return masked_id(value, self.topic_labels)
        if isinstance(value, str):
            return self._string(field, value)
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)  # JSON has no such number
        if isinstance(value, bool) or not isinstance(value, int):
            return value
        return self._number(field, value)

    def _string(self, field: str, value: str) -> str:
        for member_id, shown in self._members.items():
            value = value.replace(member_id, shown)
        return masked_ids_in_text(masked_text(field, value, self.token), self.topic_labels)

    def _number(self, field: str, value: int) -> int | str:
        if "producer_id" in field:
            if value in self._producers:
                return self._producers[value]
            if value - ANOTHER_PRODUCER in self._producers:
                return f"another than {self._producers[value - ANOTHER_PRODUCER]}"
        if field in self._hidden and value >= 0:
            return f"<{field}>"
        return masked_number(field, value)

    def _blob(self, value: bytes) -> str:
        """Of what members say to each other through the broker."""
        return self._string("", value.decode(errors="backslashreplace"))


def _is_default(value: object, default: object) -> bool:
    """Whether a field holds what its declaration says, or nothing at all where that says nothing.

    Of a list it is only told whether it may be left out: answers can lose elements that are not the exchange's own.
    """
    if isinstance(value, list):
        return default is REQUIRED or default == []
    if default is not REQUIRED:
        return value == default
    return value is not None and (not value or value == ZERO_UUID)


def without_defaults(rendered: Json) -> Json:
    if isinstance(rendered, list):
        return [without_defaults(element) for element in rendered]
    if isinstance(rendered, Rendered):
        return {
            field: without_defaults(value)
            for field, value in rendered.items()
            if field not in rendered.at_default or (isinstance(value, list) and value)
        }
    return rendered


def _only_with(names: Collection[str], rendered: Json) -> Json:
    if isinstance(rendered, list):
        return [_only_with(names, element) for element in rendered if _is_own(element, names)]
    if isinstance(rendered, Rendered):
        fields = {field: _only_with(names, value) for field, value in rendered.items()}
        return Rendered(fields, rendered.at_default)
    return rendered


def _is_own(element: Json, names: Collection[str]) -> bool:
    """What has no name of its own goes with what it is part of."""
    named = [element[field] for field in NAMES if field in element] if isinstance(element, dict) else []
    return not named or named[0] in names


def _shortened(rendered: Json) -> Json:
    if isinstance(rendered, dict):
        return {field: _shortened(value) for field, value in rendered.items()}
    if isinstance(rendered, list):
        shown = [_shortened(element) for element in rendered[:SHOWN_ELEMENTS]]
        return shown if len(rendered) == len(shown) else [*shown, f"... ({len(rendered)} in all)"]
    if isinstance(rendered, str) and len(rendered) > SHOWN_CHARACTERS:
        return f"{rendered[:20]}... ({len(rendered)} characters)"
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
