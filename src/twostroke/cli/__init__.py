"""The command line: one file a verb.

Knows: the engine's public API, the options table, how to print.
Must not know: scheduler, cache, kernels.
"""
