"""Encoders: each position sees the whole text, and what comes out are vectors or scores.

Knows: nothing of its own.
Must not know: which backend runs.
"""
