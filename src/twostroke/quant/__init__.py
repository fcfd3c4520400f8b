"""Rounding: how numbers become packed weights, and which formats this engine offers.

Knows: codecs and their measured errors.
Must not know: files, models, which kernels multiply.
"""
