"""The shells of the coordinators: logs, clocks and timers around their machines."""
