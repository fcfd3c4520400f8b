"""The instruction set: one file an op, each with its contract, its NumPy reference and its cost.

The slow version is the definition: every backend is tested against it over a generated grid.
"""
