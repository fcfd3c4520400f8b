"""Decodes the bytes of image files in a process of its own."""
