"""Keeps pages of prompts on a disk: it chooses what to write and read between steps, in threads of its own."""
