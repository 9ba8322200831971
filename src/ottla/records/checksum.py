"""The checksum of batches, from the compiled module of the package crc32c.

The package itself also looks up its version and prepares a command line, which takes as long as a tenth of a broker's
start. So the module is loaded without it, where it is found.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

Buffer = bytes | bytearray | memoryview

PACKAGE = "crc32c"
COMPILED = f"{PACKAGE}._crc32c"


def load(compiled: str = COMPILED) -> Callable[[Buffer], int]:
    """The function that computes it; from the package if that has no such module."""
    package = PathFinder.find_spec(PACKAGE)
    found = package and PathFinder.find_spec(compiled, package.submodule_search_locations)
    if found is None or found.loader is None:
        from crc32c import crc32c as from_package

        return from_package
    module = module_from_spec(found)
    found.loader.exec_module(module)
    function: Callable[[Buffer], int] = module.crc32c
    return function


crc32c = load()
