"""Quantizing a model with calibration: `mathematics` and `layouts` are NumPy alone, `driver` runs the model.

Knows: its rooms.
Must not know: commands, servers.
"""
