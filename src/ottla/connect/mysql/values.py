"""Values that are neither numbers nor plain text, as JSON; and the names of character sets."""

from __future__ import annotations

import binascii
import codecs
import json
import socket
import zlib
from collections.abc import Callable, Mapping, Sequence

# Python's names of character sets of several bytes, where they are others. Those of one byte are asked of the server.
_CODECS = {
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "sjis": "shift-jis",
    "ujis": "euc-jp",
    "eucjpms": "euc-jp",
    "euckr": "cp949",
}
_encode = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would make one for each text
_UTF8 = ("utf8mb4", "utf8mb3", "utf8", "ascii")
Decode = Callable[[bytes], str]
"""Of a character set: bytes to text."""
Maker = Callable[[bytes], bytes]


def utf8(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def decode_of(character_set: str, tables: Mapping[str, str]) -> Decode | None:
    """None for bytes. `tables` has the 256 characters of each character set of one byte."""
    if character_set == "binary":
        return None
    if character_set in _UTF8:
        return utf8
    table = tables.get(character_set)
    if table is not None:
        return lambda data: codecs.charmap_decode(data, "replace", table)[0]
    name = _CODECS.get(character_set, character_set)
    try:
        "".encode(name)
    except LookupError:
        return None
    return lambda data: data.decode(name, "replace")


def quoted(text: str) -> bytes:
    """As a JSON string."""
    return _encode(text).encode()


def text_of(decode: Decode) -> Maker:
    return lambda data: quoted(decode(data))


def base64_of(data: bytes) -> bytes:
    return b'"' + binascii.b2a_base64(data, newline=False) + b'"'


def padded_base64(size: int) -> Maker:
    """BINARY(n): the zeros at its end are left out in the binlog."""
    return lambda data: base64_of(data.ljust(size, b"\0"))


def uuid_of(data: bytes) -> bytes:
    """As MariaDB stores it: the parts of versions 1 to 5 in the other order, so that those of one node are together."""
    data = data.ljust(16, b"\0")
    if data[6] & 0x80 and 0 < data[8] < 0x60:
        data = data[12:16] + data[10:12] + data[8:10] + data[6:8] + data[0:6]
    digits = data.hex()
    return f'"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"'.encode()


def inet6_of(data: bytes) -> bytes:
    return quoted(socket.inet_ntop(socket.AF_INET6, data.ljust(16, b"\0")))


def inet4_of(data: bytes) -> bytes:
    return quoted(socket.inet_ntop(socket.AF_INET, data.ljust(4, b"\0")))


def enum_of(values: Sequence[str]) -> Callable[[int], bytes]:
    """0 is the empty text, which MySQL has for what was none of the values."""
    texts = [b'""', *map(quoted, values)]
    return lambda number: texts[number] if number < len(texts) else b'""'


def set_of(values: Sequence[str]) -> Callable[[int], bytes]:
    def make(bits: int) -> bytes:
        return quoted(",".join(value for index, value in enumerate(values) if bits >> index & 1))

    return make


def decompressed(make: Maker) -> Maker:
    """For columns that MariaDB compresses: a byte of flags, the length, and deflated bytes; or 0 and plain ones."""

    def of(data: bytes) -> bytes:
        if not data or data[0] == 0:
            return make(data[1:])
        length_bytes = data[0] & 7
        window = -zlib.MAX_WBITS if data[0] & 8 else zlib.MAX_WBITS  # with or without the header of zlib
        return make(zlib.decompress(data[1 + length_bytes :], window))

    return of
