"""Formats whose calls are a name as text and arguments as JSON."""
