"""Formats whose calls are JSON objects that hold the name."""
