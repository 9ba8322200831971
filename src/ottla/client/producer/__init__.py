"""Writing: the producer, its transactions, and what both are made of."""
