"""Rounding: how numbers become packed weights, and which formats this engine offers."""
