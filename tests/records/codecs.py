"""The codec both ways: as it was compiled, and the same file as plain Python."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import ottla.records.memory
from ottla.records import codec as installed


def load_plain(name: str) -> ModuleType:
    source = Path(ottla.records.memory.__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"plain_{name}", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLAIN = load_plain("codec")
COMPILED: ModuleType | None = installed if installed.COMPILED else None

needs_compiled = pytest.mark.skipif(COMPILED is None, reason="the codec is not compiled here: no C compiler at install")
both_ways = pytest.mark.parametrize(
    "codec", [pytest.param(PLAIN, id="plain"), pytest.param(COMPILED, id="compiled", marks=needs_compiled)]
)
