"""Building, reading, compressing and validating records."""

import importlib.util
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from bench.report import Result, measure, rate
from ottla.records import codec as installed
from ottla.records import memory
from ottla.records.build import build_batch
from ottla.records.compression import GZIP, LZ4, NAMES, SNAPPY, ZSTD, compress, decompress
from ottla.records.read import read_records
from ottla.records.validate import ProduceSettings, validate_produce

BATCH_BYTES = 1 << 20
JSON_BYTES = 64 * 1024
SETTINGS = ProduceSettings()
TARGETS = {"build": ">= 20", "objects": ">= 5", "columns": ">= 50"}


def run(quick: bool) -> list[Result]:
    results = []
    for size in (100, 1024):
        results += _codec(installed, "compiled" if installed.COMPILED else "plain", size)
        if installed.COMPILED and not quick:
            results += _codec(_plain(), "plain", size)
    results += _batches()
    results += _compressions()
    return results


def _plain() -> ModuleType:
    """The codec as it runs where it could not be compiled."""
    source = Path(memory.__file__).with_name("codec.py")
    spec = importlib.util.spec_from_file_location("plain_codec", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _codec(codec: ModuleType, kind: str, size: int) -> list[Result]:
    count = BATCH_BYTES // size
    values = [random.randbytes(size) for _ in range(count)]
    area = bytes(codec.encode_values(values))

    def columns() -> object:
        made = codec.Columns()
        made.append_batch(area, count, 0, 0)
        return made.finish()

    steps: dict[str, Callable[[], object]] = {
        "build": lambda: codec.encode_values(values, 61),
        "objects": lambda: codec.decode_records(area, count, 0, 0),
        "columns": columns,
        "scan": lambda: codec.scan_records(area, count),
        "keys": lambda: codec.decode_keys(area, count),
    }
    return [
        Result.of(
            f"{name}, {size} B values, {kind}",
            rate(measure(step, repeats=15), count),
            "M records/s",
            TARGETS.get(name, "") if kind == "compiled" and size == 100 else "",
            scale=1e-6,
        )
        for name, step in steps.items()
    ]


def _batches() -> list[Result]:
    value = [random.randbytes(100)]
    one = build_batch(value, timestamp=0)
    values = [random.randbytes(1024)] * 16
    steps: dict[str, Callable[[], object]] = {
        "build a batch of 1 record": lambda: build_batch(value, timestamp=0),
        "read a batch of 1 record": lambda: read_records(one),
        "validate a batch of 1 record": lambda: _validate(memoryview(one)),
    }
    results = [Result.of(name, measure(step), "us", scale=1e6) for name, step in steps.items()]
    for codec in (0, LZ4, ZSTD):
        batch = memoryview(build_batch(values, timestamp=0, codec=codec))
        spread = measure(lambda batch=batch: _validate(batch))  # type: ignore[misc]
        results.append(Result.of(f"validate a batch of 16 KB, {NAMES[codec]}", spread, "us", scale=1e6))
    return results


def _validate(batch: memoryview) -> object:
    return validate_produce(batch, SETTINGS, partition="t-0", version=12, has_transactional_id=False, now_ms=0)


def _compressions() -> list[Result]:
    random.seed(1)
    rows = (
        f'{{"id": {n}, "name": "user-{random.randrange(1000)}", "amount": {random.random():.4f}, "ok": true}}\n'
        for n in range(2000)
    )
    data = "".join(rows).encode()[:JSON_BYTES]
    results = []
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        compressed = compress(codec, data)
        ratio = len(data) / len(compressed)
        steps: dict[str, Callable[[], object]] = {
            f"{NAMES[codec]} compress 64 KB of JSON ({ratio:.1f} : 1)": lambda codec=codec: compress(codec, data),  # type: ignore[misc]
            f"{NAMES[codec]} decompress": lambda codec=codec, it=compressed: decompress(codec, it),  # type: ignore[misc]
        }
        for name, step in steps.items():
            results.append(Result.of(name, rate(measure(step), len(data)), "MB/s", scale=1e-6))
    return results
