"""Kafka's ids: 16 raw bytes on the wire, 22 characters of URL-safe base64 wherever people read them."""

from __future__ import annotations

import binascii
import os

ZERO_UUID = bytes(16)
"""Stands for "no id" wherever an id may be missing."""

_FIXED_BITS = 0xF000_C000_0000_0000_0000
_VERSION_4 = 0x4000_8000_0000_0000_0000

_STANDARD = "+/"
_URL_SAFE = "-_"
_TO_URL_SAFE = bytes.maketrans(_STANDARD.encode(), _URL_SAFE.encode())
_TO_STANDARD = str.maketrans(_URL_SAFE, _STANDARD, _STANDARD)


def new_uuid() -> bytes:
    """A random one, as RFC 4122 has them (version 4). `uuid.uuid4` is slower to import, and to ask."""
    random = int.from_bytes(os.urandom(16))
    return (random & ~_FIXED_BITS | _VERSION_4).to_bytes(16)


def uuid_text(uuid: bytes) -> str:
    """The form that Kafka's tools print and its metadata stores."""
    if len(uuid) != 16:
        raise ValueError(f"an id has 16 bytes, not {len(uuid)}")
    return binascii.b2a_base64(uuid, newline=False)[:22].translate(_TO_URL_SAFE).decode()


def parse_uuid(text: str) -> bytes:
    """The 16 bytes of an id that was printed by uuid_text or by Kafka."""
    try:
        uuid = binascii.a2b_base64(text.translate(_TO_STANDARD) + "==", strict_mode=True)
    except ValueError:
        uuid = b""
    if len(uuid) != 16 or len(text) != 22:
        raise ValueError(f"not an id of 22 base64url characters: {text!r}")
    return uuid
