"""Writing GGUF files, which llama.cpp reads too: no calibration, so the engine does not run."""
