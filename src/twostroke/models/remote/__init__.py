"""Architectures whose published code lies next to their checkpoints, not in transformers.

That Python code is never run. Each file names in its first line the models whose code it follows.
"""
