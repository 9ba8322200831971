"""Whole frames: header and body, with the size in front when written, without it when read."""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any

from ottla.wire.apis import API_VERSIONS, Api
from ottla.wire.header import (
    RequestHeader,
    has_tagged_response_header,
    read_correlation_id,
    read_request_header,
    request_header_bytes,
    response_body_position,
)
from ottla.wire.parts import BUFFERS, Buffer, Part
from ottla.wire.registry import REQUESTS, RESPONSES
from ottla.wire.schema import Request, Response

JOINED_BYTES = 1 << 16  # what is longer is not copied for the sake of a header

_SIZE = struct.Struct(">i")
_pack_head, _HEAD_BYTES = struct.Struct(">ii").pack, 4  # the size does not count itself
_pack_tagged_head, _TAGGED_HEAD_BYTES = struct.Struct(">iix").pack, 5


def encode_request(correlation_id: int, client_id: str | None, request: Request, version: int) -> list[Part]:
    """The parts of a frame, ready to be sent: one piece, unless the request carries records."""
    parts: list[Any] = request.writers[version](request)
    head = request_header_bytes(request.api, version, correlation_id, client_id)
    parts[0] = b"".join((_SIZE.pack(len(head) + _total_bytes(parts)), head, parts[0]))
    return parts


def encode_response(correlation_id: int, response: Response, version: int) -> list[Part]:
    """The parts of a frame, ready to be sent: one piece, unless the response carries records."""
    parts: list[Any] = response.writers[version](response)
    if len(parts) > 1 or len(parts[0]) > JOINED_BYTES:
        return _framed(correlation_id, response, version, parts)
    body, api = parts[0], response.api
    if (
        version >= api.flexible and api is not API_VERSIONS
    ):  # a tagged header; calls to find out cost as much as the rest
        parts[0] = _pack_tagged_head(len(body) + _TAGGED_HEAD_BYTES, correlation_id) + body
    else:
        parts[0] = _pack_head(len(body) + _HEAD_BYTES, correlation_id) + body
    return parts


def encode_response_in_steps(
    correlation_id: int, response: Response, version: int
) -> Generator[None, None, list[Part]]:
    """The same as a generator, which lets others in between if it is a large one."""
    parts = yield from response.step_writers[version](response)
    return _framed(correlation_id, response, version, parts)


def _framed(correlation_id: int, response: Response, version: int, parts: list[Any]) -> list[Part]:
    first = parts[0]
    body_bytes = len(first) if len(parts) == 1 else _total_bytes(parts)
    if has_tagged_response_header(response.api, version):
        packed = _pack_tagged_head(body_bytes + _TAGGED_HEAD_BYTES, correlation_id)
    else:
        packed = _pack_head(body_bytes + _HEAD_BYTES, correlation_id)
    if len(first) > JOINED_BYTES:
        return [packed, *parts]
    parts[0] = packed + first
    return parts


def _total_bytes(parts: list[Any]) -> int:
    # A loop of its own, for answers with hundreds of parts: a call a part would cost as much as the rest.
    return sum([len(part) if isinstance(part, BUFFERS) else part.size_bytes for part in parts])


def decode_request(frame: Buffer) -> tuple[RequestHeader, Request]:
    header = read_request_header(frame)
    return header, decode_request_body(header, frame)


def decode_request_body(header: RequestHeader, frame: Buffer) -> Request:
    """The body behind a header that was read first. Bytes behind the body are ignored, as Kafka does."""
    request: Request
    request, _ = REQUESTS[header.api.key].readers[header.version](frame, header.body_position)
    return request


def decode_request_body_in_steps(header: RequestHeader, frame: Buffer) -> Generator[None, None, Request]:
    """The same as a generator; not for requests with records, which stay where they are."""
    request: Request
    request, _ = yield from REQUESTS[header.api.key].step_readers[header.version](frame, header.body_position)
    return request


def decode_response(frame: Buffer, api: Api, version: int) -> tuple[int, Response]:
    """The correlation id and the body of the answer to a request of this API and version."""
    correlation_id = read_correlation_id(frame)
    position = response_body_position(frame, api, version)
    response: Response
    response, _ = RESPONSES[api.key].readers[version](frame, position)
    return correlation_id, response
