"""What the Spark session of a pipeline needs beside what every session of ours has."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ottla.pipelines.tables.delta_log import CATALOG, EXTENSION
from ottla.pipelines.tables.pipeline import Pipeline

_DEFAULTS = {
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.streaming.noDataProgressEventInterval": "1h",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
}
_DELTA = {
    "spark.sql.extensions": EXTENSION,
    "spark.sql.catalog.spark_catalog": CATALOG,
    # Nothing is ever in it, but Spark makes the folder, in the current one unless it is told.
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "ottla-spark-warehouse"),
}


def session_configs(pipeline: Pipeline) -> dict[str, str]:
    """Those of the pipeline's file win."""
    delta = _DELTA if pipeline.engine == "delta-spark" else {}
    return {**_DEFAULTS, **delta, **pipeline.spark}
