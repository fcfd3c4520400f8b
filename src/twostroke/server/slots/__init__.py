"""Slots of llama.cpp's API: the last answer of each number, which can be saved under a name and restored."""
