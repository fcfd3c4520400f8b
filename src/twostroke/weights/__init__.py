"""Turns files into packed weights: safetensors, GGUF, names, packing, the cache on disk, the hub."""
