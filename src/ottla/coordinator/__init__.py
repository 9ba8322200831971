"""Groups, offsets and transactions: machines whose state is their log. Nothing here does I/O or asks a clock."""
