"""Formats whose calls are JSON objects that hold the name.

Knows: their marks.
Must not know: how they are read.
"""
