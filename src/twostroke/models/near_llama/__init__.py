"""Decoders that are Llama except for one thing: an activation, a norm, a window, a factor. Each architecture has one
file."""
