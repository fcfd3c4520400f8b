"""Encoders: each position sees the whole text, and the results are vectors or scores."""
