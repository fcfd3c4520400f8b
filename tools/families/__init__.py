"""The shapes of model families, their random GGUF files, and what is measured of them."""
