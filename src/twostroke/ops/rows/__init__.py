"""Ops that treat each row by itself: norms, activations, sums, gates."""
