"""Plan to batch to model to tokens; owns the KV memory.

Knows: models, sampling, array shapes.
Must not know: why these sequences were chosen.
"""
