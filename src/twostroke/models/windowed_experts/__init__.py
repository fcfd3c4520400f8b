"""Decoders with mixtures of experts in which some layers see a window alone. One file an architecture."""
