"""Rows of a checkpoint made into packed bytes: floats that are rounded, and codes that are laid out as they are."""
