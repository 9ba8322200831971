"""Processes that find Python's modules compiled, as they are where a package was installed by pip."""

import functools
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

REPOSITORY = Path(__file__).parents[1]
LOAD_BROKER = """
import importlib, pkgutil, ottla.broker, ottla.cli.serve
for module in pkgutil.walk_packages(ottla.broker.__path__, "ottla.broker."):
    importlib.import_module(module.name)
"""


def with_compiled_modules(cache: str) -> dict[str, str]:
    """The environment of a process that finds compiled modules in a folder, and puts there what is missing."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    return environment | {"PYTHONPATH": path, "PYTHONPYCACHEPREFIX": cache}


@functools.cache
def with_compiled_broker() -> dict[str, str]:
    """The same with a folder that has all modules of a broker, and goes when this process ends."""
    environment = with_compiled_modules(_folder().name)
    subprocess.run((sys.executable, "-c", LOAD_BROKER), env=environment, check=True)
    return environment


@functools.cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="ottla-bench-")
