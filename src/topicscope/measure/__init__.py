"""Numbers from matrices and attention."""
