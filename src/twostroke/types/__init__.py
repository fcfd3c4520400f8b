"""The words all rooms use: requests, plans, results, events, errors.

Knows: the standard library.
Must not know: tensors, files, clocks, the environment.
"""
