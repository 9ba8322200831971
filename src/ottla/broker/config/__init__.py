"""The broker's settings: what there is, where each comes from, and how it changes."""
