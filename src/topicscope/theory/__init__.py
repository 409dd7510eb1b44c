"""What the paper proves and what follows from it, as pure functions in float64."""
