"""Packs rows of a checkpoint: floats are rounded to codes, and codes of a quantized file are kept and only laid out
anew."""
