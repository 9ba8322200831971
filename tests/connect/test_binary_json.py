"""MySQL's binary JSON: recorded of a real server and compared with what it shows; crooked bytes are refused."""

import gzip
import importlib.util
import json
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.mysql import binary_json as installed
from ottla.connect.mysql.binlog import BinlogReader, Place, RowChanges
from tests.connect.real_mysql import RECORDED_DOCUMENTS
from tests.connect.test_mysql_recorded import find_table


def load_plain() -> ModuleType:
    source = Path(installed.__file__).with_name("binary_json.py")
    spec = importlib.util.spec_from_file_location("plain_binary_json", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLAIN = load_plain()
HEAD, *EVENTS = gzip.decompress(RECORDED_DOCUMENTS.read_bytes()).decode().splitlines()
INSERTED, DOCUMENT_AT = 30, 40
"""Of the events of inserted rows: their kind, and where the document of the only row begins."""
needs_compiled = pytest.mark.skipif(not installed.COMPILED, reason="it is not compiled here: no C compiler at install")
MODULES = pytest.mark.parametrize("module", [installed, PLAIN], ids=["installed", "plain"])


def outcome(module: ModuleType, data: bytes) -> Any:
    try:
        return module.BinaryJson().to_json(data)
    except ValueError as error:
        return str(error)


def small_array(*entries: tuple[int, int], behind: bytes = b"") -> bytes:
    """Of values by type, and where they are or what they are."""
    size = 4 + 3 * len(entries) + len(behind)
    table = b"".join(bytes([kind]) + value.to_bytes(2, "little") for kind, value in entries)
    return b"\x02" + len(entries).to_bytes(2, "little") + size.to_bytes(2, "little") + table + behind


def test_documents_are_what_the_server_shows() -> None:
    recording = json.loads(HEAD)
    start = Place(recording["file"], recording["position"])
    reader = BinlogReader(start, is_mariadb=False, find_table=find_table, is_captured=lambda _: True)
    rows: dict[str, Any] = {}
    for event in EVENTS:
        for happened in reader.read(bytes.fromhex(event)):
            if isinstance(happened, RowChanges):
                assert happened.table.columns == {"id": "int", "document": "string"}
                after = [json.loads(row[1]) for row in happened.rows if row[1] is not None]
                rows |= {str(row["id"]): row["document"] for row in after}
    assert rows == recording["shown"]


@MODULES
def test_a_document_of_no_bytes_is_null(module: ModuleType) -> None:
    assert module.BinaryJson().to_json(b"") == b'"null"'


@MODULES
def test_values_that_share_bytes_are_refused(module: ModuleType) -> None:
    """Else a few hundred bytes are a text without an end: each array has the next one eight times."""
    assert module.BinaryJson().text(small_array((12, 7), behind=b"\x02ab")) == b'["ab"]'
    nested = b"\0\0\x04\0"
    for _ in range(40):
        size = 4 + 3 * 8 + len(nested)
        entries = b"".join(b"\x02" + (28).to_bytes(2, "little") for _ in range(8))
        nested = b"\x08\0" + size.to_bytes(2, "little") + entries + nested
    with pytest.raises(ValueError, match="overlap"):
        module.BinaryJson().text(b"\x02" + nested)


@MODULES
@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x0d", "type 13"),
        (b"\x04\x03", "literal 3"),
        (b"\x0b" + b"\xff" * 8, "number that is none"),
        (b"\x0c\xff\xff\xff\xff\xff\xff", "length that is none"),
        (b"\x0c\x80\x00", "length that is none"),
        (b"\x0f\xf6\x03\x05\x06\x80", "decimal that is none"),
        (b"\x0f\xf6\x02\x05\x02", "cut"),
        (b"\x0f\x0a\x01\x00", "time that is cut"),
        (small_array((2, 0xFFFF)), "cut"),
        (small_array(*[(4, 0)] * 3)[:-1], "cut"),
    ],
)
def test_what_is_no_document_is_refused(module: ModuleType, data: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        module.BinaryJson().text(data)


@MODULES
def test_a_document_that_is_too_deep_is_refused(module: ModuleType) -> None:
    def nested(depth: int) -> bytes:
        data = b"\0\0\x04\0"
        for _ in range(depth - 1):
            data = b"\x01\0" + (7 + len(data)).to_bytes(2, "little") + b"\x02\x07\0" + data
        return b"\x02" + data

    assert module.BinaryJson().text(nested(100)) == b"[" * 100 + b"]" * 100
    with pytest.raises(ValueError, match="deeper than 100"):
        module.BinaryJson().text(nested(101))


@needs_compiled
@given(st.binary(max_size=80))
def test_compiled_and_plain_are_the_same(data: bytes) -> None:
    assert outcome(installed, data) == outcome(PLAIN, data)


@needs_compiled
def test_damaged_documents_are_the_same_to_both() -> None:
    chance = random.Random(1)
    kinds: set[int] = set()
    for event in EVENTS:
        data = bytes.fromhex(event)
        if data[4] != INSERTED or not DOCUMENT_AT < len(data) < 5_000:
            continue
        document = data[DOCUMENT_AT:]
        for _ in range(20):
            damaged = bytearray(document)
            for _ in range(chance.randrange(3)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            given = bytes(damaged[: chance.randrange(1, len(damaged) + 1)])
            assert outcome(installed, given) == outcome(PLAIN, given)
            kinds.add(given[0])
    assert kinds >= {0, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12}
