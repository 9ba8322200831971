"""Pipelines on Spark: the data source `ottla`, and what is built on it. Everything here that imports pyspark."""
