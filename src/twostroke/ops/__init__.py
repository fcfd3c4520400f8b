"""The instruction set: one file for each op, with the op's contract, its NumPy reference and its cost.

The slow NumPy version is the definition: every backend is tested against it over a generated grid.
"""
