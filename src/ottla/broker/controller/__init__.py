"""Decisions on topics, configurations and quotas: taken in turn, kept in the store, applied on this broker."""
