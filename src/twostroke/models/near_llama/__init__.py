"""Decoders that are Llama but for one thing: an activation, a norm, a window, a factor. One file an architecture."""
