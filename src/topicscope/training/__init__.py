"""Training runs: objective, loop, what they record."""
