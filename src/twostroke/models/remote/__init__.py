"""Architectures whose published code lies next to their checkpoints, not in transformers.

Their Python is never run. Each file names in its first line whose program it repeats.
"""
