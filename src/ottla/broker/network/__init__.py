"""Connections: taken in, bounded, frames in and answers out."""
