"""Slots of llama.cpp's API: the server remembers the last answer with each slot number (id_slot). Its pages can be
saved under a name and restored."""
