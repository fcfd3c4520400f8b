"""Decoders whose feed-forward blocks are mixtures of experts.

Knows: the blocks of models/common.
Must not know: which backend runs.
"""
