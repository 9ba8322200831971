"""The sink `ottla` of Spark: micro-batches as transactions."""
