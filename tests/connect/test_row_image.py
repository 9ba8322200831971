"""Rows of the binlog as JSON: compiled and as plain Python they are the same, and damage is refused."""

import importlib.util
import json
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.mysql import layout as kinds
from ottla.connect.mysql import row_image as installed
from ottla.connect.mysql.layout import ColumnLayout
from ottla.connect.mysql.values import base64_of, enum_of


def load_plain() -> ModuleType:
    source = Path(kinds.__file__).with_name("row_image.py")
    spec = importlib.util.spec_from_file_location("plain_row_image", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLAIN = load_plain()
needs_compiled = pytest.mark.skipif(not installed.COMPILED, reason="it is not compiled here: no C compiler at install")
COLUMNS = [
    ColumnLayout("id", kinds.SIGNED, 4),
    ColumnLayout("name", kinds.TEXT, 1),
    ColumnLayout("tiny", kinds.SIGNED, 1),
    ColumnLayout("wide", kinds.WIDE_UNSIGNED, 8),
    ColumnLayout("float", kinds.FLOAT, 4),
    ColumnLayout("double", kinds.DOUBLE, 8),
    ColumnLayout("money", kinds.DECIMAL, 12, 4),
    ColumnLayout("long", kinds.DECIMAL, 65, 30),
    ColumnLayout("day", kinds.DATE, 3),
    ColumnLayout("time", kinds.TIME, 3),
    ColumnLayout("old moment", kinds.DATETIME, 8),
    ColumnLayout("old stamp", kinds.TIMESTAMP, 4),
    ColumnLayout("stamp", kinds.TIMESTAMP2, 4, 3),
    ColumnLayout("moment", kinds.DATETIME2, 5, 6),
    ColumnLayout("duration", kinds.TIME2, 3, 5),
    ColumnLayout("duration 0", kinds.TIME2, 3, 0),
    ColumnLayout("year", kinds.YEAR, 1),
    ColumnLayout("bits", kinds.BIT, 3),
    ColumnLayout("bits 64", kinds.WIDE_BIT, 8),
    ColumnLayout("kind", kinds.CHOICE, 1, 0, enum_of(["a", "ö"])),
    ColumnLayout("blob", kinds.OTHER, 2, 0, base64_of),
]


def outcome(module: ModuleType, data: bytes, columns: list[ColumnLayout], present: bytes) -> Any:
    image = module.RowImage(columns, [0, len(columns) - 1])
    try:
        row, key = image.decode(data, 0, present)
    except ValueError as error:
        return str(error)
    return row, key, image.position


@needs_compiled
@given(st.binary(max_size=200), st.integers(0, len(COLUMNS)), st.randoms(use_true_random=False))
def test_compiled_and_plain_are_the_same(data: bytes, count: int, chance: random.Random) -> None:
    columns = chance.sample(COLUMNS, max(count, 1))
    present = bytes(chance.randrange(256) for _ in range((len(columns) + 7) // 8))
    assert outcome(installed, data, columns, present) == outcome(PLAIN, data, columns, present)


@needs_compiled
@given(st.text(max_size=60), st.integers(-(1 << 31), (1 << 31) - 1))
def test_any_text_is_json(text: str, number: int) -> None:
    encoded = text.encode("utf-8", "replace")
    data = b"\0" + number.to_bytes(4, "little", signed=True) + bytes([len(encoded)]) + encoded
    for module in (installed, PLAIN):
        row, key = module.RowImage(COLUMNS[:2], [0]).decode(data, 0, b"\x03")
        assert json.loads(row) == {"id": number, "name": encoded.decode()}
        assert json.loads(key) == {"id": number}


@pytest.mark.parametrize("module", [installed, PLAIN], ids=["installed", "plain"])
def test_a_row_that_is_cut_is_refused(module: ModuleType) -> None:
    whole = b"\0" + (7).to_bytes(4, "little") + b"\3abc"
    image = module.RowImage(COLUMNS[:2], [0])
    assert image.decode(whole, 0, b"\x03") == (b'{"id":7,"name":"abc"}', b'{"id":7}')
    for size in range(len(whole)):
        with pytest.raises(ValueError, match="cut"):
            image.decode(whole[:size], 0, b"\x03")
