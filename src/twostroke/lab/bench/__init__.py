"""Measurements: synthetic checkpoints, the two phases."""
