"""Whole frames: header and body, with the size in front when written, without it when read."""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any

from ottla.wire.apis import Api
from ottla.wire.fast_path import encode_usual
from ottla.wire.header import (
    RequestHeader,
    framed,
    has_tagged_response_header,
    read_correlation_id,
    read_request_header,
    request_header_bytes,
    response_body_position,
    total_bytes,
)
from ottla.wire.parts import Buffer, Part
from ottla.wire.registry import REQUESTS, RESPONSES
from ottla.wire.schema import Request, Response

_SIZE = struct.Struct(">i")


def encode_request(correlation_id: int, client_id: str | None, request: Request, version: int) -> list[Part]:
    """The parts of a frame, ready to be sent: one piece, unless the request carries records."""
    parts: list[Any] = request.writers[version](request)
    head = request_header_bytes(request.api, version, correlation_id, client_id)
    parts[0] = b"".join((_SIZE.pack(len(head) + total_bytes(parts)), head, parts[0]))
    return parts


def encode_response(correlation_id: int, response: Response, version: int) -> list[Part]:
    """The parts of a frame, ready to be sent: one piece, unless the response carries records."""
    parts = encode_usual(correlation_id, response, version)
    if parts is not None:
        return parts
    is_tagged = has_tagged_response_header(response.api, version)
    return framed(correlation_id, is_tagged, response.writers[version](response))


def encode_response_in_steps(
    correlation_id: int, response: Response, version: int
) -> Generator[None, None, list[Part]]:
    """The same as a generator, which lets others in between if it is a large one."""
    parts = yield from response.step_writers[version](response)
    return framed(correlation_id, has_tagged_response_header(response.api, version), parts)


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
