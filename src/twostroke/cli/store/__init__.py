"""Verbs of the model store."""
