"""Training runs: their objective, their loop, and what they record."""
