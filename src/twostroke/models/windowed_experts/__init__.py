"""Decoders with mixtures of experts in which some layers see a window alone. One file an architecture.

Knows: nothing itself. Must not know: which backend runs.
"""
