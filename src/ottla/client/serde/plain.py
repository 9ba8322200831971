"""Text and JSON."""

from __future__ import annotations

import json
from typing import Any


def encode_text(text: str) -> bytes:
    """As UTF-8."""
    if not isinstance(text, str):
        raise TypeError(f"text is a str, not {type(text).__name__}")
    return text.encode()


def decode_text(data: bytes) -> str:
    return bytes(data).decode()


def encode_json(value: Any) -> bytes:
    """Compact, as UTF-8. What JSON does not have (NaN, sets, dates) is refused."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def decode_json(data: bytes) -> Any:
    return json.loads(bytes(data))
