"""Encoders: each position sees the whole text, and what comes out are vectors or scores."""
