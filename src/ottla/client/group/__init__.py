"""Groups: their members, in both protocols, and their committed offsets."""
