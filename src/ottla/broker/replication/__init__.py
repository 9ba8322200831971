"""The copies of partitions: followers fetch from their leaders, and leaders tell the controller who is in sync."""
