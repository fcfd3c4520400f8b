"""A model as data: the calls of its program, and what they read and write. Passes work on it; backends run it.

Knows: sizes, shapes, names of tensors.
Must not know: NumPy, what an op computes, which models there are, which backend runs.
"""
