"""The offsets that groups commit: kept, fetched, removed."""
