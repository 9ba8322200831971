"""One partition on disk."""
