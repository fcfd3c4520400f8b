"""Quantizing a model with calibration. `mathematics` and `layouts` need NumPy alone; `driver` runs the model."""
