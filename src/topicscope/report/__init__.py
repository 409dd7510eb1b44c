"""Figures for people to look at."""
