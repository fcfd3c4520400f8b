"""Quantizing a folder: the model runs layer by layer on a text, what its products read is measured, codes are written.

Knows: programs, checkpoints, the mathematics, the layouts.
Must not know: commands, servers.
"""
