"""Keeps pages of prompts on a disk. It chooses between steps what to write and read, and does so in threads of its own.
"""
