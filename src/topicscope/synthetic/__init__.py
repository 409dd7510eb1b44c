"""Synthetic documents: topic models and the masking scheme."""
