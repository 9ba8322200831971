"""Decisions for the whole cluster, and the store that remembers them."""
