"""Stored work: responses, files and batches, in a folder that survives a restart."""
