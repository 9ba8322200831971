"""Many copies of one log: the partition, its in-sync set, its high watermark."""
