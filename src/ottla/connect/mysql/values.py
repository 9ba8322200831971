"""Values that are neither numbers nor plain text, as JSON; and the names of character sets."""

from __future__ import annotations

import binascii
import json
import socket
import zlib
from collections.abc import Callable, Sequence

BINARY_COLLATION = 63
UTF8 = "utf-8"
# By the first part of the collation's name, where it is not what Python calls it.
_CODECS = {
    "utf8mb4": UTF8,
    "utf8mb3": UTF8,
    "utf8": UTF8,
    "ascii": UTF8,
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "tis620": "tis-620",
    "sjis": "shift-jis",
    "ujis": "euc-jp",
    "eucjpms": "euc-jp",
    "euckr": "euc-kr",
    "macroman": "mac-roman",
    "macce": "mac-latin2",
}
Maker = Callable[[bytes], bytes]


def codec_of(character_set: str) -> str | None:
    """What Python calls a character set; None for bytes, and for those that Python does not know."""
    if character_set == "binary":
        return None
    name = _CODECS.get(character_set, character_set)
    try:
        "".encode(name)
    except LookupError:
        return None
    return name


def quoted(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False).encode()


def text_of(codec: str) -> Maker:
    """latin1 has characters where cp1252 has none: they stay what they are in Unicode."""
    if codec == "cp1252":
        return lambda data: quoted(_from_latin1(data))
    return lambda data: quoted(data.decode(codec, "replace"))


def _from_latin1(data: bytes) -> str:
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in data)


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
