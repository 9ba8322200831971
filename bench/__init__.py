"""Measurements: `python -m bench` prints every figure with its spread and the target it has to reach."""
