"""What the Spark session of a pipeline needs beside what every session of ours has."""

from __future__ import annotations

from ottla.pipelines.tables.pipeline import Pipeline

_DEFAULTS = {
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.streaming.noDataProgressEventInterval": "1h",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
}
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def session_configs(pipeline: Pipeline) -> dict[str, str]:
    """Those of the pipeline's file win."""
    delta = _DELTA if pipeline.engine == "spark" else {}
    return {**_DEFAULTS, **delta, **pipeline.spark}
