"""The format `ottla` of Spark's readers and writers: Spark finds this package by its name.

Spark imports it whenever it looks for data sources of any kind, so it must not fail: what it needs is imported with
the first use of the format.
"""

from ottla.pipelines.data_source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
