"""Measurements: synthetic checkpoints, the two phases.

Knows: the engine's public API, clocks.
Must not know: scheduler, cache, kernels.
"""
