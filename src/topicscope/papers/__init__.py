"""Papers as lists of claims: a folder for each, with its claims, experiments, measuring functions and drawings."""
