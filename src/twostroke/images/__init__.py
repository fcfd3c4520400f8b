"""Turns image files into tiles: formats, limits, the process that decodes, and the rules of each family."""
