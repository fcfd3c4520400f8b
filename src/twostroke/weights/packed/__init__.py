"""Packed weights on disk: the file, its header, its checksums, the folder of such files."""
