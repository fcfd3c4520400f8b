"""GGUF: the container, ggml's block types, and what stands in it under the names that the rest of the engine uses.

Knows: the format of llama.cpp's files.
Must not know: which tensors a program asks for, how weights are packed.
"""
