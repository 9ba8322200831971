"""What makes tests with Ottla easy: fault injection and simulated twins."""
