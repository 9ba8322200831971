"""Tables to begin with, made without a topic."""

import zlib

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from ottla.pipelines.tables.layout import BUCKET, Layout
from ottla.pipelines.tables.table import ChangeTable

COLUMNS = {"id": "bigint", "name": "string", "amount": "double", "count": "bigint"}
PART_ROWS = 1_000_000


def buckets_for(size: int) -> int:
    return 16 if size <= 20_000_000 else 64


def fill(path: str, size: int, layout: Layout) -> None:
    """A folded table of that many rows, sorted into buckets as changes of the same keys will be."""
    ChangeTable(path, layout).create(COLUMNS)
    schema = layout.base_schema(COLUMNS)
    for begin in range(0, size, PART_ROWS):
        part = rows(np.arange(begin, min(begin + PART_ROWS, size)), "a1", layout.buckets).select(schema.names)
        write_deltalake(path, part.cast(schema), mode="append")


def rows(ids: np.ndarray, position: str, buckets: int) -> pa.Table:
    """Rows with the buckets of their keys."""
    count = len(ids)
    return pa.table(
        {
            "id": ids,
            "name": pa.array(ids % 10_000).cast(pa.string()),
            "amount": ids * 0.37,
            "count": ids * 7,
            "_deleted": np.zeros(count, dtype=bool),
            "_position": pa.array([position] * count),
            "_commit_time": pa.array(np.zeros(count, dtype=np.int64)).cast(pa.timestamp("us", tz="UTC")),
            BUCKET: np.fromiter((zlib.crc32(b"%d" % key) % buckets for key in ids), np.int32, count),
        }
    )
