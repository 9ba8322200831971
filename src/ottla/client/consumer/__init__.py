"""Reading: the consumer, the reader, and what both are made of."""
