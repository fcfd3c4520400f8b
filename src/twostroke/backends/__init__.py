"""Implementations of the ops: `cpu` and `cuda`."""
