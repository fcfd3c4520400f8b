"""GGUF: the container, ggml's block types, and the file's content under the names that the rest of the engine uses."""
