"""Formats whose calls are a name as text and arguments as JSON.

Knows: their marks.
Must not know: how they are read.
"""
