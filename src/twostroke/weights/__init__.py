"""From files to packed weights: safetensors, names, packing at load, the cache on disk, the hub."""
