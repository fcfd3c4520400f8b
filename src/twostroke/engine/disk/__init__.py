"""Keeps pages of prompts on a disk. Between steps it chooses what to write and read; its own threads write and read."""
