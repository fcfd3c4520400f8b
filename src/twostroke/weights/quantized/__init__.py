"""Checkpoints whose matrices are quantized: one file for each format, all behind `matrix.QuantizedMatrix`.

Knows: the formats of the hub.
Must not know: which tensors a program reads, how weights are packed here.
"""
