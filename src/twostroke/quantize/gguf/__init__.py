"""Writing GGUF files, which llama.cpp reads too: no calibration, so the engine does not run.

Knows: folders, the container, the blocks of ggml.
Must not know: commands.
"""
