"""Measuring, predicting and simulating: what a machine can do and what the engine does with it."""
