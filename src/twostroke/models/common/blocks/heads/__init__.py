"""Heads and layers that guess tokens from a model's hidden states."""
