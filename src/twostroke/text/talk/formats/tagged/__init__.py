"""Formats whose arguments are text between tags.

Knows: their marks.
Must not know: how they are read.
"""
