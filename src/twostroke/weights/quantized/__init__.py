"""Checkpoints whose matrices are quantized: one file for each format, all after `matrix.QuantizedMatrix`."""
