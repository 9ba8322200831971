"""Batches that are small where they lie and decompress to very much, made without ever holding that."""

from collections.abc import Iterable

from ottla.records.batch import HEADER, HEADER_SIZE, PREFIX_SIZE, read_header, stamp_crc
from ottla.records.build import finish_batch
from ottla.records.codec import encode_columns
from ottla.records.compression import Compressor

TIMESTAMP = 1000


def bomb(codec: int, keys: Iterable[bytes], value: bytes | None) -> bytearray:
    """A batch with a record of each key, all with one value, one millisecond after the other."""
    compressor = Compressor(codec)
    batch = bytearray(HEADER_SIZE)
    count = 0
    for key in keys:
        batch += compressor.add(encode_columns([value], [key], [TIMESTAMP + count], None, [count], TIMESTAMP))
        count += 1
    batch += compressor.finish()
    finish_batch(batch, count, count - 1, TIMESTAMP, TIMESTAMP + count - 1)
    header = read_header(batch)
    HEADER.pack_into(batch, 0, *header._replace(attributes=codec, length=len(batch) - PREFIX_SIZE))
    stamp_crc(batch, 0, len(batch))
    return batch
