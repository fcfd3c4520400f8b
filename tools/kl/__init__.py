"""Measures how far logits of rounded files are from those of the float32 model, by this engine and by llama.cpp."""
