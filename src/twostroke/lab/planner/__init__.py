"""Predicts what a model will cost on a machine. Only its config.json is read."""
