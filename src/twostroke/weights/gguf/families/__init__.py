"""The architectures of GGUF files by their names at Hugging Face: an entry for each, and how converters changed the
tensors."""
