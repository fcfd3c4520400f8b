"""The formats that are known by hand: one file for each, with its examples.

Knows: the marks of each format.
Must not know: how they are read.
"""
