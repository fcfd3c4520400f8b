"""Writes GGUF files, which llama.cpp reads too. Weights are rounded without calibration: the model is never run."""
