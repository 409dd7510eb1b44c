"""The transformer of eq. 6 and 7, and its switches."""
