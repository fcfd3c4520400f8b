"""Which codes stand for a matrix so that its products change least: pure functions on arrays.

Knows: NumPy.
Must not know: models, files, the engine.
"""
