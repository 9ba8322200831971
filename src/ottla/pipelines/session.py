"""The Spark session that pipelines run in: found where there is one, otherwise made."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.pipelines.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
DEFAULT_MASTER = "local[*]"
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
}


class SparkMissing(Exception):
    """PySpark is not installed; the message says how to install it."""


def spark_session(
    master: str | None = None, *, name: str = "ottla", configs: Mapping[str, str] | None = None
) -> SparkSession:
    """The active session, or a new one on `master`: "local[*]" if none is named.

    A new one runs this Python in its workers, and where it is local, on the loopback address alone. JavaMissing or
    SparkMissing, in one sentence, where it cannot start.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise SparkMissing('PySpark is not installed: "pip install ottla[spark]"') from None
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    prepare_environment(is_local=master is None or master.startswith("local"))
    builder = SparkSession.builder.appName(name).master(master or DEFAULT_MASTER)
    for key, value in {**_DEFAULTS, **(configs or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def prepare_environment(*, is_local: bool) -> None:
    """What Spark's launcher and its workers read from the environment. What is set already stays."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
