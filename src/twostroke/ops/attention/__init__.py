"""Ops of attention: K, V and latents in pages, rotation, softmax attention."""
