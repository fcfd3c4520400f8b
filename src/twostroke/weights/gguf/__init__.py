"""GGUF: the container, ggml's block types, and what stands in it under the names that the rest of the engine uses."""
