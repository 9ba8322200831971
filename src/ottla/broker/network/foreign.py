"""What a client may speak that sends something else than frames."""

from __future__ import annotations

TLS_HANDSHAKE = b"\x16\x03"
HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE")


def why_no_frame(start: memoryview, size: int, most_bytes: int) -> str:
    """What protocol the client may speak, if what it sent is no frame: often the wrong one is configured."""
    text = bytes(start)
    if text[:2] == TLS_HANDSHAKE:
        return "the client speaks TLS, and this port does not; its security.protocol should be PLAINTEXT"
    if text in HTTP_METHODS:
        return "the client speaks HTTP; this port is for Kafka's protocol"
    return f"a frame of {size} bytes is not within 0 and {most_bytes}"
