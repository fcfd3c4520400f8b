"""Writes GGUF files, which llama.cpp reads too. There is no calibration, so the engine does not run."""
