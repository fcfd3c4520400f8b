"""Finds the codes of a matrix with which its products change least: pure functions on arrays."""
