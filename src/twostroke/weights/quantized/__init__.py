"""Checkpoints whose matrices are quantized: one file for each format, all behind `matrix.QuantizedMatrix`."""
