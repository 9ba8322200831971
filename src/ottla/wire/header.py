"""The headers of requests and responses. They are read alone, before anything is known of the body."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from ottla.wire.apis import API_VERSIONS, BY_KEY, Api
from ottla.wire.errors import ProtocolError
from ottla.wire.parts import BUFFERS, Buffer, Part
from ottla.wire.varint import read_uvarint, skip_tags

_REQUEST = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")
JOINED_BYTES = 1 << 16  # what is longer is not copied for the sake of a header
_pack_head, _HEAD_BYTES = struct.Struct(">ii").pack, 4  # the size does not count itself
_pack_tagged_head, _TAGGED_HEAD_BYTES = struct.Struct(">iix").pack, 5


class RequestHeader(NamedTuple):
    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body_position: int
    """Where the body starts in the frame that the header was read from."""


_make_header = tuple.__new__  # half the cost of its constructor


def read_request_header(frame: Buffer) -> RequestHeader:
    """Reads the header of a frame (without its size). The version may be one that the API does not have."""
    try:
        key, version, correlation_id, length = _REQUEST.unpack_from(frame)
        api = BY_KEY.get(key)
        if api is None:
            raise ProtocolError(f"unknown API {key}")
        position = _REQUEST.size
        client_id = None
        # The client id keeps its old length in flexible versions, so that this much can always be read.
        if length >= 0:
            position += length
            if position > len(frame):
                raise ProtocolError(f"request header: client id of {length} bytes does not fit")
            client_id = str(frame[_REQUEST.size : position], "utf-8", "replace")  # a name for logs, no more
        if version >= api.flexible:
            if frame[position]:
                position = _skip_tag_section(frame, position)
            else:  # no tags, as ever
                position += 1
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"request header: {len(frame)} bytes are too few") from error
    return _make_header(RequestHeader, (api, version, correlation_id, client_id, position))


def request_header_bytes(api: Api, version: int, correlation_id: int, client_id: str | None) -> bytes:
    encoded = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(encoded)
    tags = b"\0" if version >= api.flexible else b""
    return _REQUEST.pack(api.key, version, correlation_id, length) + encoded + tags


def read_correlation_id(frame: Buffer) -> int:
    """Tells which request a response (without its size) answers: only then is known how to read it."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    except struct.error as error:
        raise ProtocolError(f"response header: {len(frame)} bytes are too few") from error
    return int(correlation_id)


def response_body_position(frame: Buffer, api: Api, version: int) -> int:
    """Where the body of a response starts in its frame."""
    if not has_tagged_response_header(api, version):
        return _CORRELATION_ID.size
    try:
        return _skip_tag_section(frame, _CORRELATION_ID.size)
    except IndexError as error:
        raise ProtocolError(f"response header: {len(frame)} bytes are too few") from error


def has_tagged_response_header(api: Api, version: int) -> bool:
    # Whoever asks for ApiVersions cannot know yet which versions the other side has.
    return version >= api.flexible and api is not API_VERSIONS


def framed(correlation_id: int, is_tagged: bool, parts: list[Any]) -> list[Part]:
    """The parts of an answer's body with its size and header in front."""
    if is_tagged:
        head = _pack_tagged_head(total_bytes(parts) + _TAGGED_HEAD_BYTES, correlation_id)
    else:
        head = _pack_head(total_bytes(parts) + _HEAD_BYTES, correlation_id)
    if len(parts[0]) > JOINED_BYTES:
        return [head, *parts]
    parts[0] = head + parts[0]
    return parts


def total_bytes(parts: list[Any]) -> int:
    # A loop of its own, for answers with hundreds of parts: a call a part would cost as much as the rest.
    return sum([len(part) if isinstance(part, BUFFERS) else part.size_bytes for part in parts])


def _skip_tag_section(frame: Buffer, position: int) -> int:
    count, position = read_uvarint(frame, position)
    return skip_tags(frame, position, count) if count else position
