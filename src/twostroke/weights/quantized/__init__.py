"""Checkpoints whose matrices are quantized: one file for each format, all with `matrix.QuantizedMatrix`."""
