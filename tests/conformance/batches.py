"""Batches as producers send them, and in every way they should not."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from ottla.records import batch as at
from ottla.records.build import build_batch
from tests.conformance.script import TIMESTAMP_MS


def plain(count: int = 3, *, key: bytes | None = b"key", **options: Any) -> bytearray:
    options.setdefault("timestamp", TIMESTAMP_MS)
    return build_batch(values(count), keys=[key] * count, **options)


def values(count: int) -> Sequence[bytes]:
    return [b"value %d" % number for number in range(count)]


def sequenced(producer_id: int, base_sequence: int, *, epoch: int = 0, count: int = 1, **options: Any) -> bytearray:
    return plain(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence, **options)


def patched(batch: bytearray, position: int, layout: str, value: int, *, stamp: bool = True) -> bytearray:
    """The batch with one field of its header written over; the checksum is made right unless told."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    if stamp:
        at.stamp_crc(changed, 0, len(changed))
    return changed


def with_area(batch: bytearray, area: bytes) -> bytearray:
    """The header of a batch before other records."""
    changed = batch[: at.HEADER_SIZE] + area
    struct.pack_into(">i", changed, at.LENGTH_AT, len(changed) - at.PREFIX_SIZE)
    at.stamp_crc(changed, 0, len(changed))
    return changed
