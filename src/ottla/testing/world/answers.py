"""Answers that a broker did not give: refusals, and true answers with an error written into them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, cast

from ottla.testing.refusals import can_be_refused, refusal
from ottla.wire.frames import decode_response, encode_response
from ottla.wire.header import RequestHeader
from ottla.wire.parts import Buffer
from ottla.wire.schema import Request, Struct

SIZE_BYTES = 4
CORRELATION_ID_BYTES = 4
_ERROR_FIELDS = ("error_code", "partition_error_code")


def refuse(header: RequestHeader, request: Request, code: int) -> bytes | None:
    """The frame that refuses a request; None where nobody knows it without asking the broker."""
    if not can_be_refused(header.api):
        return None
    return _joined(encode_response(header.correlation_id, refusal(request, header.version, code), header.version))


def spoil(frame: bytes, header: RequestHeader, request: Request, code: int) -> bytes:
    """The broker's answer with an error wherever one can stand: what it did is done."""
    refused = refuse(header, request, code)
    if refused is not None:
        return refused
    _, answer = decode_response(frame[SIZE_BYTES:], header.api, header.version)
    _write_errors(answer, code)
    return _joined(encode_response(header.correlation_id, answer, header.version))


def alter(frame: bytes, header: RequestHeader, change: Callable[[Any], object]) -> bytes:
    """The broker's answer as `change` leaves it."""
    _, answer = decode_response(frame[SIZE_BYTES:], header.api, header.version)
    change(answer)
    return _joined(encode_response(header.correlation_id, answer, header.version))


def garble(frame: bytes, random: Random) -> bytes:
    """A whole frame with other bytes in it, or fewer, behind its size and its correlation id."""
    body = bytearray(frame[SIZE_BYTES + CORRELATION_ID_BYTES :])
    for _ in range(random.randint(1, 4)):
        if body:
            body[random.randrange(len(body))] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
    if random.random() < 0.3:
        del body[random.randint(0, len(body)) :]
    frame = frame[SIZE_BYTES : SIZE_BYTES + CORRELATION_ID_BYTES] + body
    return len(frame).to_bytes(SIZE_BYTES, "big") + frame


def _write_errors(struct: Struct, code: int) -> None:
    for name in struct.declared:
        value = getattr(struct, name)
        if name in _ERROR_FIELDS:
            setattr(struct, name, code)
        elif isinstance(value, Struct):
            _write_errors(value, code)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    _write_errors(each, code)


def _joined(parts: Any) -> bytes:
    return b"".join(cast("list[Buffer]", parts))
