"""A schema registry, by the HTTP interface of Confluent's, and its wire format: a zero, the schema's id, the bytes.

Answers are kept: each schema is asked for once. A question blocks whoever asks, on an event loop too.
"""

from __future__ import annotations

import base64
import http.client
import json
import struct
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

from ottla.client.errors import ClientError

_HEAD = struct.Struct(">bi")
MAGIC = 0
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_MAY_PASS = (408, 429)
_OWN_FAULT = 500


class RegistryError(ClientError):
    """The schema registry refuses, or cannot be reached: then it is retriable, and no record's fault."""

    def __init__(self, sentence: str, *, is_retriable: bool = False) -> None:
        super().__init__(sentence)
        self.is_retriable = is_retriable


class Reference(NamedTuple):
    """A schema that another one uses: the name it has there, and where the registry keeps it."""

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    text: str
    type: str  # AVRO, PROTOBUF or JSON
    references: tuple[Reference, ...] = ()


class SchemaRegistry:
    """`url` as in "http://localhost:8081"; `user` and `password` for basic authentication."""

    def __init__(self, url: str, *, user: str = "", password: str = "", timeout_seconds: float = 10.0) -> None:
        self._url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._headers = {"Accept": _CONTENT_TYPE, "Content-Type": _CONTENT_TYPE}
        if user:
            self._headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self._ids: dict[tuple[str, Schema], int] = {}
        self._schemas: dict[int, Schema] = {}
        self._references: dict[tuple[str, Schema], Reference] = {}
        self._referred: dict[tuple[str, int], Schema] = {}

    def register(self, subject: str, schema: Schema) -> int:
        """The id of a schema under a subject, which has it from now on."""
        found = self._ids.get((subject, schema))
        if found is None:
            found = int(self._ask(f"{_path(subject)}/versions", _body(schema))["id"])
            self._ids[subject, schema] = found
        return found

    def refer(self, name: str, schema: Schema) -> Reference:
        """Registers a schema that others use, under its name, and says where it is."""
        found = self._references.get((name, schema))
        if found is None:
            self.register(name, schema)
            found = Reference(name, name, int(self._ask(_path(name), _body(schema))["version"]))
            self._references[name, schema] = found
        return found

    def schema(self, schema_id: int) -> Schema:
        found = self._schemas.get(schema_id)
        if found is None:
            found = self._schemas[schema_id] = _schema(self._ask(f"/schemas/ids/{schema_id}"))
        return found

    def referred(self, reference: Reference) -> Schema:
        """What another schema uses."""
        place = reference.subject, reference.version
        found = self._referred.get(place)
        if found is None:
            answer = self._ask(f"{_path(reference.subject)}/versions/{reference.version}")
            found = self._referred[place] = _schema(answer)
        return found

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, self._headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_seconds) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                reason = error.read().decode(errors="replace")
            sentence = f"schema registry {self._url}: {error.code} for {path}: {reason}"
            raise RegistryError(sentence, is_retriable=error.code in _MAY_PASS or error.code >= _OWN_FAULT) from None
        except OSError as error:
            sentence = f"schema registry {self._url} cannot be reached: {error}"
            raise RegistryError(sentence, is_retriable=True) from error
        except (ValueError, http.client.HTTPException) as error:
            sentence = f"schema registry {self._url}: no answer of a registry for {path}: {error!r}"
            raise RegistryError(sentence, is_retriable=True) from error


def _path(subject: str) -> str:
    return f"/subjects/{urllib.parse.quote(subject, safe='')}"


def _schema(answer: dict[str, Any]) -> Schema:
    references = answer.get("references") or ()
    return Schema(
        answer["schema"],
        answer.get("schemaType") or "AVRO",
        tuple(Reference(one["name"], one["subject"], int(one["version"])) for one in references),
    )


def _body(schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text, "schemaType": schema.type}
    if schema.references:
        body["references"] = [reference._asdict() for reference in schema.references]
    return body


def frame(schema_id: int, data: bytes) -> bytes:
    return _HEAD.pack(MAGIC, schema_id) + data


def unframe(data: bytes) -> tuple[int, bytes]:
    """The schema's id and the bytes behind it; ValueError if they are not in the wire format."""
    if len(data) < _HEAD.size or data[0] != MAGIC:
        raise ValueError("the bytes are not in the wire format of a schema registry: they begin with a zero and an id")
    return _HEAD.unpack_from(data)[1], data[_HEAD.size :]
