"""Statistics of the probe: pairs of words, their averages, intervals and tests."""
