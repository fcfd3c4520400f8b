"""Quantizing a model with calibration: `mathematics` and `layouts` are NumPy alone, `driver` runs the model."""
