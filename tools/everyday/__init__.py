"""Measures the bars in seconds of everyday use: names, starts, loads, samplers, pages on a disk."""
