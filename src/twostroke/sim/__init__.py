"""The production heart under a virtual clock, with predictions in place of a model.

Knows: scheduler, cache, engine core, predicted times, workloads.
Must not know: kernels, tokenizers, real clocks.
"""
