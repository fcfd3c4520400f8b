"""Measures how far results are from exact ones: logits, weights in each format, K and V, published models."""
