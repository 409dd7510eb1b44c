"""What people look at: figures, and the one-file page."""
