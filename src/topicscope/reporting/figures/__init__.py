"""Figures for people to look at, from arrays."""
