"""Formats whose calls look like code, or have braces of their own.

Knows: their marks.
Must not know: how they are read.
"""
